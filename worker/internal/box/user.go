package box

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/posture"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/acl"
)

// User is a Linux user that a box has to itself, or shares with other boxes of
// one bot.
type User struct {
	UID      int      // on the machine; its group has the same number
	Space    *os.File // the user namespace in which Number is that user
	Nsenter  string   // the program that goes there
	Number   int      // of the user there and in the box
	GroupNum int      // of its group
}

// Close gives the namespace up, where no kit has it.
func (u *User) Close() {
	if u != nil && u.Space != nil {
		u.Space.Close()
	}
}

// FindNsenter finds util-linux' nsenter, which a bot's box starts with.
// bubblewrap's own --userns would do for the user, and would leave the caller's
// groups to the box: only in the namespace can they be dropped, and it does not.
// Nor could the box then refuse further user namespaces (--disable-userns).
func FindNsenter(path string) (string, error) {
	if path == "" {
		path = defaultPath
	}
	for _, dir := range filepath.SplitList(path) {
		name := filepath.Join(dir, "nsenter")
		if st, err := os.Stat(name); err == nil && filepath.IsAbs(dir) && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			if err := checkOwned(name); err != nil {
				return "", reason.New(reason.BotUsersRefused, "nsenter cannot be used: %w", err)
			}
			return name, nil
		}
	}
	return "", reason.New(reason.BotUsersRefused, "there is no nsenter in PATH").WithHint("install it: apt-get install util-linux")
}

// enter is the beginning of a command line that goes on as the user.
func (u *User) enter(fd int) []string {
	return []string{u.Nsenter, "--user=/proc/self/fd/" + strconv.Itoa(fd),
		"--setuid=" + strconv.Itoa(u.Number), "--setgid=" + strconv.Itoa(u.GroupNum), "--"}
}

// checkUser reads back that a process is the user's, whole: no other id, and
// no group but its own. A box of no such user is its caller's.
func (u *User) checkUser(pid int) error {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return reason.New(reason.BotUsersRefused, "see whose the box is: %w", err)
	}
	s, err := posture.ParseStatus(string(text))
	if err != nil {
		return reason.New(reason.BotUsersRefused, "see whose the box is: %w", err)
	}
	all := [4]int{u.UID, u.UID, u.UID, u.UID}
	if s.UID != all || s.GID != all || len(s.Groups) > 0 {
		return reason.New(reason.BotUsersRefused, "the box has the users %v, the groups %v and %v beside them; it must have %d alone", s.UID, s.GID, s.Groups, u.UID)
	}
	return nil
}

// checkBox reads that back of a box that stands.
func (u *User) checkBox(l *Live) error {
	if u == nil {
		return nil
	}
	return errors.Join(u.checkUser(l.Engine.Pid), u.checkUser(l.Init.Pid))
}

// checkReach tells whether the bot's user gets to what a mount shows: it is
// that user who builds the box, and no capability of its namespace counts for
// the files of others.
func (u *User) checkReach(m Mount, f *os.File) error {
	for dir := filepath.Dir(m.Source); ; dir = filepath.Dir(dir) {
		may, err := mayAt(dir, uint32(u.UID))
		if err != nil {
			return reason.New(reason.BotUserPath, "%s cannot enter the box: look at %s: %w", m.Source, dir, err)
		}
		if may&acl.X == 0 {
			return reason.New(reason.BotUserPath, "%s cannot enter the box: the folder %s is closed to the bot's user %d", m.Source, dir, u.UID)
		}
		if dir == "/" {
			break
		}
	}
	if m.Kind != Bind {
		return nil
	}
	may, err := acl.May(f, uint32(u.UID))
	if err == nil && may&acl.W == 0 {
		return reason.New(reason.BotUserPath, "%s cannot enter the box to be written: it is not the bot's user's (%d)", m.Source, u.UID)
	}
	if err != nil {
		return reason.New(reason.BotUserPath, "%s cannot enter the box: %w", m.Source, err)
	}
	return nil
}

func mayAt(path string, id uint32) (acl.Perm, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	return acl.May(f, id)
}

// Gives tells whether the bot's user can work in a folder of the account's.
func (u *User) Gives(path string) bool {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	return u.checkReach(Mount{Kind: Bind, Source: path}, f) == nil
}

// Fresh starts a process in a user namespace of its own, lets write see to its
// maps, and gives the namespace without the process.
func (s *Spawner) Fresh(entry Program, write func(pid int) error) (*os.File, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, reason.New(reason.System, "make a pipe: %w", err)
	}
	defer in.Close()
	child, err := s.holder(entry, in)
	if err != nil {
		out.Close()
		return nil, reason.New(reason.BotUsersRefused, "make a user namespace: %w", err)
	}
	defer child.Wait()
	defer out.Close() // its end
	ns, err := os.Open(filepath.Join("/proc", strconv.Itoa(child.Pid()), "ns/user"))
	if err != nil {
		return nil, reason.New(reason.BotUsersRefused, "open the user namespace: %w", err)
	}
	if err := write(child.Pid()); err != nil {
		ns.Close()
		return nil, err
	}
	return ns, nil
}

// holding is what a holder is started with: a user namespace, and an end when
// we end.
func holding() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWUSER}
}
