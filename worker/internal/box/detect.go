package box

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// Finding is the answer to "is there a box on this machine, and if not, why".
type Finding struct {
	Bwrap   string // absolute path
	Version string // bubblewrap's own
	Err     error  // nil, or an error with the code that says why not
}

// Wanted is the seed's rule: on by default on a Cloud home, off elsewhere
// unless OMB_BOT_BOX=1, and off everywhere with OMB_BOT_BOX=0. `botbox run`
// does not ask it: whoever types that wants a box.
func Wanted(botBox, cloudRole string) error {
	switch {
	case botBox == "0":
		return reason.New(reason.SwitchedOff, "the box is off: OMB_BOT_BOX is 0")
	case botBox == "1", cloudRole == "home", cloudRole == "team":
		return nil
	}
	return reason.New(reason.NotCloud, "the box is off: this is no Cloud home, and OMB_BOT_BOX is not set")
}

// neededOptions are those that this package uses and that bubblewrap 0.8.0 may
// lack: --bind-fd came with the fix of CVE-2024-42472, which Debian and Ubuntu
// carry in 0.8.0 and 0.9.0.
var neededOptions = []string{"--bind-fd", "--ro-bind-fd", "--args", "--json-status-fd", "--disable-userns", "--size", "--perms", "--clearenv", "--die-with-parent"}

// defaultPath is where bubblewrap is looked for when PATH is not set.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// FindBwrap finds bubblewrap in a PATH, and refuses one that is setuid or that
// others could replace. It starts nothing.
func FindBwrap(path string) (string, error) {
	if runtime.GOOS != "linux" {
		return "", reason.New(reason.NotLinux, "there is no box on %s", runtime.GOOS)
	}
	if path == "" {
		path = defaultPath
	}
	for _, dir := range filepath.SplitList(path) {
		name := filepath.Join(dir, "bwrap")
		if st, err := os.Stat(name); err == nil && filepath.IsAbs(dir) && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return name, checkBwrap(name)
		}
	}
	return "", reason.New(reason.NoBwrap, "there is no bwrap in PATH")
}

func checkBwrap(name string) error {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return reason.New(reason.NoBwrap, "look at %s: %w", name, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(real, &st); err != nil {
		return reason.New(reason.NoBwrap, "look at %s: %w", name, err)
	}
	if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		return reason.New(reason.BwrapSetuid, "%s is setuid", name)
	}
	if n, err := unix.Getxattr(real, "security.capability", nil); err == nil && n > 0 {
		return reason.New(reason.BwrapSetuid, "%s has file capabilities", name).
			WithHint("take them away: setcap -r %s", real)
	}
	for place := real; ; place = filepath.Dir(place) {
		if err := unix.Stat(place, &st); err != nil {
			return reason.New(reason.NoBwrap, "look at %s: %w", place, err)
		}
		if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
			return reason.New(reason.BwrapUnsafe, "%s belongs to another user (uid %d)", place, st.Uid)
		}
		if st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
			return reason.New(reason.BwrapUnsafe, "%s can be written by others", place)
		}
		if place == "/" {
			return nil
		}
	}
}

// probeTime bounds each question to bubblewrap.
const probeTime = 2 * time.Second

// Detect tells whether this machine can build a box, by building small ones.
// entry is boxentry: a static program that every machine that runs us has,
// where /bin/true is missing on some.
func (s *Spawner) Detect(path string, entry Program) Finding {
	bwrap, err := FindBwrap(path)
	f := Finding{Bwrap: bwrap, Err: err}
	if err == nil {
		f.Version, f.Err = s.checkVersion(bwrap)
	}
	if f.Err == nil {
		f.Err = s.probe(bwrap, entry)
	}
	return f
}

func (s *Spawner) checkVersion(bwrap string) (string, error) {
	out, err := s.ask(probeTime, nil, bwrap, "--version")
	if errors.Is(err, context.DeadlineExceeded) {
		return "", reason.New(reason.ProbeTimeout, "%s --version did not answer in %v", bwrap, probeTime)
	}
	version, major, minor := parseVersion(string(out))
	if err != nil || version == "" {
		return "", reason.New(reason.BwrapTooOld, "%s does not say its version", bwrap)
	}
	if major == 0 && minor < 8 {
		return version, reason.New(reason.BwrapTooOld, "%s is version %s; the box needs 0.8.0", bwrap, version)
	}
	help, _ := s.ask(probeTime, nil, bwrap, "--help")
	for _, option := range neededOptions {
		if !bytes.Contains(help, []byte(option+" ")) {
			return version, reason.New(reason.BwrapTooOld, "%s (version %s) lacks the option %s", bwrap, version, option)
		}
	}
	return version, nil
}

// parseVersion reads "bubblewrap 0.8.0"; the version is empty if it is not
// that.
func parseVersion(line string) (version string, major, minor int) {
	words := strings.Fields(line)
	if len(words) != 2 || words[0] != "bubblewrap" {
		return "", 0, 0
	}
	numbers := strings.Split(words[1], ".")
	if len(numbers) < 2 {
		return "", 0, 0
	}
	major, errMajor := strconv.Atoi(numbers[0])
	minor, errMinor := strconv.Atoi(numbers[1])
	if errMajor != nil || errMinor != nil {
		return "", 0, 0
	}
	return words[1], major, minor
}

// stages add one layer after the other, so that the first that fails is the
// cause. What bubblewrap prints is not relied on: its words change.
var stages = []struct {
	options []string
	code    reason.Code
	what    string
}{
	{[]string{"--unshare-user"}, reason.UsernsRefused, "a user namespace"},
	{[]string{"--unshare-pid", "--proc", "/proc"}, reason.ProcMasked, "a /proc of its own"},
	{[]string{"--unshare-net"}, reason.NetRefused, "a network namespace with a loopback"},
	{[]string{"--unshare-ipc", "--unshare-uts", "--unshare-cgroup", "--dev", "/dev", "--disable-userns"}, reason.BoxFailed, "the remaining namespaces"},
}

// probe builds the whole trial box at once, and looks for the stage that
// fails only if it does not stand.
func (s *Spawner) probe(bwrap string, entry Program) error {
	if s.trial(bwrap, entry, len(stages)) == nil {
		return nil
	}
	for i, stage := range stages {
		err := s.trial(bwrap, entry, i+1)
		if errors.Is(err, context.DeadlineExceeded) {
			return reason.New(reason.ProbeTimeout, "a trial box with %s did not stand in %v", stage.what, probeTime)
		}
		if err != nil {
			return reason.New(cause(stage.code), "a trial box with %s could not be built", stage.what)
		}
	}
	return nil // it stood at the second try: the machine was out of something for a moment
}

func (s *Spawner) trial(bwrap string, entry Program, upTo int) error {
	file, err := entry.open()
	if err != nil {
		return err
	}
	defer file.Close()
	args := entry.options(ChildFD, EntryPath)
	for _, stage := range stages[:upTo] {
		args = append(args, stage.options...)
	}
	_, err = s.ask(probeTime, []*os.File{file}, bwrap, append(args, "--", EntryPath, "trial")...)
	return err
}

// cause looks for the setting behind a refusal of the kernel's.
func cause(code reason.Code) reason.Code {
	switch {
	case code == reason.ProcMasked:
		return code
	case setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		return reason.UsernsLSM
	case code == reason.UsernsRefused && setting("/proc/sys/user/max_user_namespaces") == "0":
		return reason.UsernsLimit
	}
	return code
}

func setting(path string) string {
	b, _ := os.ReadFile(path)
	return strings.TrimSpace(string(b))
}
