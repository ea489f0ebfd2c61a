package botfiles

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/acl"
)

// LetThrough lets the bot's user go through the folders on the way, where they
// are the account's, and warns of what else it then reaches. It runs outside the
// bot's namespace, where the other bots that are let through have numbers, too.
func LetThrough(folder string, bot uint32) ([]string, error) {
	warnings := []string{}
	for dir := filepath.Dir(folder); ; dir = filepath.Dir(dir) {
		err := onWay(dir, func(f *os.File, st unix.Stat_t, l acl.List) error {
			if l.For(bot, st.Uid, st.Gid)&acl.X != 0 {
				return nil
			}
			if int(st.Uid) != os.Geteuid() {
				return reason.New(reason.BotUserPath, "the folder %s is closed to the bot's user, and is not the account's", dir).
					WithHint("chmod o+x %s", dir)
			}
			if n := openToOthers(int(f.Fd())); n > 0 {
				warnings = append(warnings, fmt.Sprintf("%d names in %s are open to others, and the bot's user can now go there: chmod o= on what is nobody else's", n, dir))
			}
			return acl.Set(int(f.Fd()), l.With(acl.User, bot, acl.X))
		})
		if err != nil || dir == "/" {
			return warnings, err
		}
	}
}

// CloseWay takes that back.
func CloseWay(folder string, bot uint32) error {
	for dir := filepath.Dir(folder); ; dir = filepath.Dir(dir) {
		err := onWay(dir, func(f *os.File, st unix.Stat_t, l acl.List) error {
			without := l.Without(acl.User, bot)
			if int(st.Uid) != os.Geteuid() || len(without) == len(l) {
				return nil
			}
			return acl.Set(int(f.Fd()), without)
		})
		if err != nil || dir == "/" {
			return err
		}
	}
}

func onWay(dir string, do func(*os.File, unix.Stat_t, acl.List) error) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return reason.New(reason.WorkFolder, "open the folder %s: %w", dir, err)
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	l, err := acl.Of(fd, st.Mode)
	if err != nil {
		return err
	}
	return do(f, st, l)
}

// openToOthers counts the names in a folder that everybody may read or enter.
func openToOthers(folder int) (n int) {
	names, _ := namesOf(folder)
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(folder, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT != unix.S_IFLNK && st.Mode&0o005 != 0 {
			n++
		}
	}
	return n
}
