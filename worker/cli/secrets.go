package cli

import (
	"bytes"
	"cmp"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

const (
	// maxSecret is longer than any key or token there is.
	maxSecret  = 16 << 10
	maxSecrets = 1 << 20 // of a whole set that is read from a pipe
	firstFD    = 3
)

// secretReader gives the secret behind ref:NAME, as it is at that moment.
type secretReader func(name string) (secret.Text, error)

// openSecrets finds the place of the named secrets, and holds on to it. Three
// kinds of place are taken: a folder, which must be the caller's alone unless
// systemd made it; a folder that somebody opened for us (fd:N); and a pipe or
// a memfd that holds a whole set (fd:N), which is read once.
func (s *Settings) openSecrets() (secretReader, error) {
	if n, ok := strings.CutPrefix(s.SecretsDir, "fd:"); ok {
		fd, err := strconv.Atoi(n)
		if err != nil {
			return nil, reason.New(reason.BadSetting, "OMB_SECRETS_DIR names no descriptor")
		}
		return inheritedSecrets(fd)
	}
	dir := s.secretsDir()
	if dir == "" {
		return func(name string) (secret.Text, error) { return noSecret(name, nil) }, nil
	}
	ours := s.SecretsDir != ""
	return func(name string) (secret.Text, error) {
		fd, err := openBeneath(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return noSecret(name, err)
		}
		defer unix.Close(fd)
		if ours && !alone(fd) {
			return secret.Text{}, reason.New(reason.NotYours, "OMB_SECRETS_DIR must be a folder of yours with mode 0700")
		}
		return secretIn(fd, name)
	}, nil
}

// secretsDir is the folder of the secrets, if they are in one that has a path.
func (s *Settings) secretsDir() string {
	if strings.HasPrefix(s.SecretsDir, "fd:") {
		return ""
	}
	return cmp.Or(s.SecretsDir, s.Credentials)
}

// alone tells whether nobody else can look into a folder.
func alone(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && int(st.Uid) == os.Geteuid() && st.Mode&0o077 == 0
}

func noSecret(name string, cause error) (secret.Text, error) {
	err := reason.New(reason.BadSpec, "the spec is not usable: there is no secret %q", name)
	err.Err = fs.ErrNotExist
	if cause != nil {
		err = reason.New(reason.BadSpec, "the spec is not usable: the secret %q cannot be read: %w", name, cause)
	}
	return secret.Text{}, err.WithHint("put it into a file of that name in OMB_SECRETS_DIR")
}

func openBeneath(at int, path string, flags uint64, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | resolve}
	return unix.Openat2(at, path, &how)
}

// secretIn reads a secret's file, less one newline at its end.
func secretIn(dir int, name string) (secret.Text, error) {
	if !filepath.IsLocal(name) {
		return noSecret(name, nil)
	}
	fd, err := openBeneath(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, unix.RESOLVE_BENEATH)
	if err != nil {
		return noSecret(name, err)
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

// inheritedSecrets takes over a descriptor that whoever started us left open.
func inheritedSecrets(fd int) (secretReader, error) {
	var st unix.Stat_t
	if fd < firstFD || unix.Fstat(fd, &st) != nil {
		return nil, reason.New(reason.BadSetting, "OMB_SECRETS_DIR names a descriptor that is not open")
	}
	unix.CloseOnExec(fd) // no box is to have it
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && kind != unix.S_IFREG && kind != unix.S_IFIFO {
		return nil, reason.New(reason.BadSetting, "OMB_SECRETS_DIR names a descriptor that is no folder, file or pipe")
	}
	if kind == unix.S_IFDIR {
		if !alone(fd) {
			return nil, reason.New(reason.NotYours, "OMB_SECRETS_DIR must be a folder of yours with mode 0700")
		}
		return func(name string) (secret.Text, error) { return secretIn(fd, name) }, nil
	}
	f := os.NewFile(uintptr(fd), "secrets")
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecrets+1))
	if err != nil || len(b) > maxSecrets {
		return nil, reason.New(reason.BadSetting, "the descriptor in OMB_SECRETS_DIR cannot be read, or gives more than %d bytes", maxSecrets)
	}
	set, ok := secretSet(b)
	clear(b)
	if !ok {
		return nil, reason.New(reason.BadSetting, "the descriptor in OMB_SECRETS_DIR gives no NAME=VALUE records with a NUL behind each")
	}
	return func(name string) (secret.Text, error) {
		if text, ok := set[name]; ok {
			return text, nil
		}
		return noSecret(name, nil)
	}, nil
}

// secretSet reads NAME=VALUE records, each with a NUL behind it.
func secretSet(b []byte) (map[string]secret.Text, bool) {
	set := map[string]secret.Text{}
	for len(b) > 0 {
		record, rest, whole := bytes.Cut(b, []byte{0})
		name, value, ok := strings.Cut(string(record), "=")
		if _, twice := set[name]; !whole || !ok || name == "" || value == "" || len(value) > maxSecret || twice {
			return nil, false
		}
		set[name], b = secret.New(value), rest
	}
	return set, true
}
