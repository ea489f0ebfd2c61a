package landlock

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What each version of the kernel's interface brought (Documentation of
// landlock(7)). Version 1 (Linux 5.13) refuses every rename from one folder to
// another, which npm and git live by, so there the mounts stand alone.
const (
	MinVersion   = 2 // 5.19: renames across folders
	withTruncate = 3 // 6.2
	withIoctl    = 5 // 6.10: ioctl on devices
	WithScope    = 6 // 6.12: abstract sockets and signals
)

// The rights that count. None of them reads or runs anything.
const (
	onFile = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	onTree = onFile | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
	onDevice = onFile | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// Nobody in a box makes a device, so nothing grants that.
	handled = onTree | onDevice | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
)

// always are the places of every box that are no folders to keep files in.
var always = []struct {
	path   string
	rights uint64
	reason string
}{
	{"/dev", onDevice, "null, zero, full and the box's own terminals"},
	{"/proc", onFile, "programs name their threads (comm), set timerslack_ns, oom_score_adj and, in a browser, uid_map"},
}

// Version gives the version of this kernel's Landlock, 0 when it has none.
func Version() int {
	v, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// known leaves out what a version does not know: the kernel takes a request
// whole or not at all.
func known(rights uint64, version int) uint64 {
	if version < withTruncate {
		rights &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version < withIoctl {
		rights &^= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return rights
}

// Confine lets the calling thread, and the program that it becomes, write in
// trees and nowhere else; with WithScope it also reaches no abstract socket
// and signals no process that is not below it. The caller has locked itself to
// its thread, and no_new_privs is set. With a version below MinVersion it does
// nothing.
func Confine(version int, trees []string) error {
	if version < MinVersion {
		return nil
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: known(handled, version)}
	if version >= WithScope {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	// A longer attr than the kernel knows is taken, as long as it is zero there.
	fd, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return errors.New("make a Landlock ruleset: " + errno.Error())
	}
	r := ruleset{int(fd), version}
	defer unix.Close(r.fd)
	for _, row := range always {
		if err := r.allow(row.path, row.rights); err != nil {
			return err
		}
	}
	for _, tree := range trees {
		if err := r.allow(tree, onTree); err != nil {
			return err
		}
	}
	if err := r.allowStdio(); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(r.fd), 0, 0); errno != 0 {
		return errors.New("enforce the Landlock ruleset: " + errno.Error())
	}
	return nil
}

type ruleset struct{ fd, version int }

func (r ruleset) allow(path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.New("open " + path + " for Landlock: " + err.Error())
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return errors.New("open " + path + " for Landlock: " + err.Error())
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= onFile // a file that was put back; a folder's rights are refused for it
	}
	if errno := r.add(fd, rights); errno != 0 {
		return errors.New("allow " + path + " in Landlock: " + errno.Error())
	}
	return nil
}

// allowStdio lets a script open /dev/stderr again when that is a file or a
// terminal outside the box: it may write there anyway. One that is open for
// reading only stays so. A pipe or a socket is in no tree, needs no rule and
// can have none (EBADFD).
func (r ruleset) allowStdio() error {
	for fd := range 3 {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		var st unix.Stat_t
		if err != nil || flags&unix.O_ACCMODE == unix.O_RDONLY || unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
			continue
		}
		if errno := r.add(fd, onDevice); errno != 0 && errno != unix.EBADFD {
			return errors.New("allow stdio in Landlock: " + errno.Error())
		}
	}
	return nil
}

func (r ruleset) add(fd int, rights uint64) unix.Errno {
	rule := unix.LandlockPathBeneathAttr{Allowed_access: known(rights, r.version), Parent_fd: int32(fd)}
	_, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	return errno
}
