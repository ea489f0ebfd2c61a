package harden

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
)

// FlyDir holds the sockets of the platform's init on a Fly machine: whoever
// reaches them can stop the machine and mint identity tokens.
const FlyDir = "/.fly"

// LockFly makes dir and what is in it root's own. A directory cannot be kept
// from us with a name, so everything goes through descriptors; and the entries
// are locked too, because a hard link elsewhere leads past the directory.
func LockFly(dir string, id privdrop.Account) (wire.StepState, string) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return wire.StepAbsent, "not a Fly machine"
	}
	if err != nil {
		return wire.StepFailed, fmt.Sprintf("not a folder that can be opened: %v", err)
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	if err := lock(fd, unix.S_IFDIR); err != nil {
		return stateOf(err), err.Error()
	}
	names, err := f.Readdirnames(-1)
	if err != nil {
		return wire.StepFailed, "cannot be listed"
	}
	for _, name := range names {
		if err := lockEntry(fd, name); err != nil {
			return stateOf(err), err.Error()
		}
	}
	in, err := enters(id, dir, nowhere)
	if err != nil || in {
		return wire.StepFailed, fmt.Sprintf("a child of the account got in: %t %v", in, err)
	}
	return wire.StepDone, fmt.Sprintf("0700 with %d locked entries; a child of the account is refused", len(names))
}

// lockEntry opens with O_PATH: a socket cannot be opened otherwise, and the
// open of a FIFO could hang.
func lockEntry(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open an entry: %w", err)
	}
	defer unix.Close(fd)
	return lock(fd, 0)
}

// lock takes everything from group and others, through the held descriptor,
// and reads it back. kind is the file type that it must be, 0 for any.
func lock(fd int, kind uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at it: %w", err)
	}
	if kind != 0 && st.Mode&unix.S_IFMT != kind {
		return errors.New("it is of an unexpected kind")
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil // has no mode of its own
	}
	if st.Uid != 0 {
		return fmt.Errorf("an entry belongs to user %d", st.Uid)
	}
	// fchmod refuses an O_PATH descriptor; the link in /proc leads to the
	// same inode on every kernel (fchmodat2 is of 6.6).
	if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), st.Mode&0o700); err != nil {
		return fmt.Errorf("change its mode: %w", err)
	}
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&0o077 != 0 {
		return fmt.Errorf("its mode reads back %04o", st.Mode&0o7777)
	}
	return nil
}
