package cli

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// account is the user that boxes run as.
type account struct {
	name string
	home string
	uid  int
	gid  int
	was  string // "root" when root was given up
}

// workerAccount is the service's user.
const workerAccount = "maus"

// leaveRoot tells who we are, and makes that somebody else if it is root.
func (c *call) leaveRoot() (account, error) {
	if os.Geteuid() != 0 {
		return currentAccount()
	}
	c.settings.RuntimeHome, c.settings.StateHome = "", "" // they are root's
	return giveUpRoot()
}

// closeToOthers takes two things away from this process that it never needs:
// new privileges through exec, and being read by another process of the same
// user.
func closeToOthers() error {
	// CGO_ENABLED=0: AllThreadsSyscall reaches every thread.
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return reason.New(reason.System, "set no_new_privs: %w", errno)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return reason.New(reason.System, "make this process not dumpable: %w", err)
	}
	return nil
}

func currentAccount() (account, error) {
	a := account{uid: os.Geteuid(), gid: os.Getegid(), home: os.Getenv("HOME")}
	u, err := user.LookupId(strconv.Itoa(a.uid))
	if err == nil {
		a.name = u.Username
	} else {
		a.name = strconv.Itoa(a.uid)
	}
	if a.home == "" && err == nil {
		a.home = u.HomeDir
	}
	if a.home == "" || a.home == "/" {
		a.home = "/home/" + a.name // a place in the box; it need not exist outside
	}
	return a, nil
}

// giveUpRoot becomes the user who called sudo, or maus: a box never runs as
// root, whose files in a box would still be root's outside.
func giveUpRoot() (account, error) {
	u, err := callerOrWorker()
	if err != nil {
		return account{}, err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if uid == 0 || gid == 0 {
		return account{}, reason.New(reason.NoBoxUser, "%s is root or in root's group; boxes never are", u.Username)
	}
	// Groups first and the user last: afterwards neither could be changed.
	err = errors.Join(syscall.Setgroups([]int{gid}), syscall.Setgid(gid), syscall.Setuid(uid))
	if err != nil {
		return account{}, reason.New(reason.System, "become %s: %w", u.Username, err)
	}
	if syscall.Setuid(0) == nil || syscall.Setgid(0) == nil {
		return account{}, reason.New(reason.Internal, "root could be taken back after it was given up")
	}
	return account{name: u.Username, home: u.HomeDir, uid: uid, gid: gid, was: "root"}, nil
}

func callerOrWorker() (*user.User, error) {
	if id := os.Getenv("SUDO_UID"); id != "" && id != "0" {
		if u, err := user.LookupId(id); err == nil {
			return u, nil
		}
	}
	u, err := user.Lookup(workerAccount)
	if err != nil {
		return nil, reason.New(reason.NoBoxUser, "a box never runs as root, and there is no user %s", workerAccount)
	}
	return u, nil
}

// announce says once that root was given up.
func (c *call) announce(a account) {
	if a.was != "" {
		fmt.Fprintf(c.stderr, "botbox: a box never runs as root; this one runs as %s\n", a.name)
	}
}

// ownFolder tells whether path is a folder that belongs to this user alone.
func ownFolder(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return reason.New(reason.NotYours, "%s is not a folder of ours that is closed to others (0700)", path)
	}
	return nil
}

// makeFolder makes a folder of ours, or checks the one that is there.
func makeFolder(path string) error {
	err := os.MkdirAll(path, 0o700)
	if err != nil {
		return reason.New(reason.System, "make the folder %s: %w", path, err)
	}
	return ownFolder(path)
}
