package cli

import (
	"cmp"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/secret"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// newRunner puts together what boxes have in common, for the worker and for a
// box that stands alone.
func (c *call) newRunner(entry box.Program, a account, options broker.Options, log *slog.Logger) (*turn.Runner, error) {
	brk, err := broker.New(options)
	if err != nil {
		return nil, err
	}
	egress, err := c.settings.egress()
	if err != nil {
		return nil, err
	}
	harness := int(c.settings.Port)
	return &turn.Runner{
		Spawner: box.NewSpawner(),
		Path:    os.Getenv("PATH"),
		Entry:   entry,
		Machine: c.machine(a),
		Ports:   turn.DefaultPorts(harness),
		Broker:  brk,
		Egress:  egress,
		Harness: "tcp:127.0.0.1:" + strconv.Itoa(harness),
		Secrets: c.settings.secret,
		Log:     log,
	}, nil
}

// machine is what plans of this machine's boxes have to know of it.
func (c *call) machine(a account) box.Machine {
	return box.LookAt(a.name, a.home, c.settings.dataDir(a.home)).
		Hiding(c.settings.runDir(), c.settings.stateDir(a.home), cmp.Or(c.settings.SecretsDir, c.settings.Credentials))
}

// maxSecret is longer than any key or token there is.
const maxSecret = 16 << 10

// secret reads the file of a named secret, less one newline at its end.
func (s *Settings) secret(name string) (secret.Text, error) {
	dir := s.SecretsDir
	if dir == "" {
		dir = s.Credentials
	}
	if dir == "" || !filepath.IsLocal(name) {
		return secret.Text{}, reason.New(reason.BadSpec, "the spec is not usable: there is no secret %q", name).
			WithHint("put it into a file of that name in OMB_SECRETS_DIR")
	}
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, filepath.Join(dir, name), &how)
	if err != nil {
		return secret.Text{}, reason.New(reason.BadSpec, "the spec is not usable: the secret %q cannot be read: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return secret.Text{}, reason.New(reason.BadSpec, "the spec is not usable: the secret %q is not a plain file", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil || len(b) > maxSecret || len(b) == 0 {
		return secret.Text{}, reason.New(reason.BadSpec, "the spec is not usable: the secret %q is empty, too long or cannot be read", name)
	}
	return secret.New(strings.TrimSuffix(string(b), "\n")), nil
}
