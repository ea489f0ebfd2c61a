package selfcheck

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// prefix begins the name of every folder that we make.
const prefix = "botbox-check-"

// sharedFolders are the machine's folders that another turn may have files in,
// and a place for each that we can write. An ordinary user cannot write /run;
// /dev/shm is as private in a box, and everybody's outside.
func sharedFolders() [][]string {
	return [][]string{
		{"/tmp"}, {"/var/tmp"},
		{"/run", "/run/botbox", "/run/user/" + strconv.Itoa(os.Geteuid()), "/dev/shm"},
		{"/dev/shm"},
	}
}

// folder makes a folder of ours in one of the machine's, and holds its lock
// until it is removed: a lock dies with its process, so whoever finds a folder
// without one knows that nobody will come back for it.
func (o *outside) folder(in string) (string, error) {
	for {
		dir, err := os.MkdirTemp(in, prefix)
		if err != nil {
			return "", err
		}
		held, err := hold(dir, unix.LOCK_SH)
		if errors.Is(err, errGone) {
			continue // another run found it before it was locked
		}
		if err != nil {
			return "", errors.Join(err, os.Remove(dir))
		}
		o.later(func() error { return errors.Join(os.RemoveAll(dir), held.Close()) })
		return dir, nil
	}
}

// sweep removes what self-checks left that were killed: folders of our naming
// and our user that no living process holds.
func sweep() {
	for _, dir := range slices.Concat(sharedFolders()...) {
		names, _ := filepath.Glob(filepath.Join(dir, prefix+"*")) // the pattern is ours
		for _, name := range names {
			if held, err := hold(name, unix.LOCK_EX); err == nil {
				os.RemoveAll(name)
				held.Close()
			}
		}
	}
}

var errGone = errors.New("the folder is another's to remove")

// hold takes the lock of a folder of our own user, without waiting for it. The
// name may be anything, laid there by anybody; once the lock is ours, the name
// is known to be still the folder's.
func hold(name string, how int) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	if err := lock(fd, name, how); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func lock(fd int, name string, how int) error {
	var open, named unix.Stat_t
	if err := unix.Fstat(fd, &open); err != nil {
		return err
	}
	if int(open.Uid) != os.Geteuid() { // looked at first: a lock would be in its owner's way
		return unix.EPERM
	}
	err := unix.Flock(fd, how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errGone
	}
	if err != nil {
		return err
	}
	if unix.Lstat(name, &named) != nil || open.Dev != named.Dev || open.Ino != named.Ino {
		return errGone
	}
	return nil
}
