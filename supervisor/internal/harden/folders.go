package harden

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Folder is a folder that the supervisor makes. Path is absolute.
type Folder struct {
	Path     string
	UID, GID uint32
	Mode     uint32
}

// MakeFolder makes f, or takes one that is root's or already f's owner's, and
// reads owner and mode back. Every component is opened below the one before
// without following a link, and none may be writable by others, so nobody can
// swap a part of the path under our hands. Errors do not repeat the path: it
// may come from the environment.
func MakeFolder(f Folder) error {
	parts := strings.Split(strings.Trim(f.Path, "/"), "/")
	at, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /: %w", err)
	}
	for i, name := range parts {
		last := i == len(parts)-1
		mode := uint32(0o755)
		if last {
			mode = 0o700
		}
		next, err := step(at, name, mode)
		unix.Close(at)
		if err != nil {
			return err
		}
		at = next
		if err := firm(at); err != nil && !last {
			unix.Close(at)
			return err
		}
	}
	defer unix.Close(at)
	return own(at, f)
}

// step opens name below the folder at, and makes it first if need be.
func step(at int, name string, mode uint32) (int, error) {
	if name == "" || name == "." || name == ".." {
		return -1, errors.New("the path is not absolute and plain")
	}
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(at, name, flags, 0)
	if errors.Is(err, unix.ENOENT) {
		if err := unix.Mkdirat(at, name, 0o700); err != nil {
			return -1, fmt.Errorf("make it: %w", err)
		}
		if fd, err = unix.Openat(at, name, flags, 0); err == nil {
			err = unix.Fchmod(fd, mode) // umask 077 holds, parents are for all
		}
	}
	if err != nil {
		return -1, fmt.Errorf("open a part of the path as a folder: %w", err)
	}
	return fd, nil
}

// firm refuses a parent in which somebody else could rename our folder.
func firm(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return errors.New("a folder above it can be written by somebody else than root")
	}
	return nil
}

func own(fd int, f Folder) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Uid != 0 && st.Uid != f.UID {
		return fmt.Errorf("it belongs to user %d", st.Uid)
	}
	if err := unix.Fchown(fd, int(f.UID), int(f.GID)); err != nil {
		return fmt.Errorf("give it to its owner: %w (it takes CAP_CHOWN)", err)
	}
	if err := unix.Fchmod(fd, f.Mode); err != nil {
		return fmt.Errorf("set its mode: %w (it takes CAP_FOWNER)", err)
	}
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Uid != f.UID || st.Gid != f.GID || st.Mode&0o7777 != f.Mode {
		return fmt.Errorf("reads back user %d group %d mode %04o", st.Uid, st.Gid, st.Mode&0o7777)
	}
	return nil
}
