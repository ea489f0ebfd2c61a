package box

import (
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// Finding is the answer to "is there a box on this machine, and if not, why".
type Finding struct {
	Bwrap   string  // absolute path
	Version string  // bubblewrap's own
	Layers  []Layer // what was tried, in order
	Err     error   // nil, or an error with the code that says why not
}

// Layer is one thing that every box needs, and how it was found.
type Layer struct {
	Name  string
	Tried bool // false: an earlier one is missing
	Holds bool
	Took  time.Duration
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
	closed := ""
	for _, dir := range filepath.SplitList(path) {
		name := filepath.Join(dir, "bwrap")
		if st, err := os.Stat(name); err != nil || !filepath.IsAbs(dir) || !st.Mode().IsRegular() {
			continue
		}
		if unix.Faccessat(unix.AT_FDCWD, name, unix.X_OK, unix.AT_EACCESS) == nil {
			return name, checkBwrap(name)
		}
		closed = name
	}
	if closed != "" {
		return "", reason.New(reason.BwrapNotRunnable, "%s is there, and this user (uid %d) may not run it", closed, os.Geteuid())
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
		return reason.New(reason.BwrapSetuid, "%s is setuid", name).
			WithHint("take the bit away: chmod u-s,g-s %s", real)
	}
	if n, err := unix.Getxattr(real, "security.capability", nil); err == nil && n > 0 {
		return reason.New(reason.BwrapSetuid, "%s has file capabilities", name).
			WithHint("take them away: setcap -r %s", real)
	}
	return checkOwned(real)
}

// checkOwned refuses a program that others could replace.
func checkOwned(name string) error {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return reason.New(reason.NoBwrap, "look at %s: %w", name, err)
	}
	var st unix.Stat_t
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
