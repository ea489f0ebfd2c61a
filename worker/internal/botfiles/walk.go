package botfiles

import (
	"errors"
	"os"
	"path/filepath"
	"sort"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// maxDepth bounds the open folders of a walk.
const maxDepth = 256

// entry is one file of a tree, held open by O_PATH.
type entry struct {
	fd   int
	path string // for a person to read
	st   unix.Stat_t
}

func (e entry) kind() uint32 { return e.st.Mode & unix.S_IFMT }

// openTop opens the folder itself, through no link.
func openTop(folder string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, folder, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return -1, reason.New(reason.WorkFolder, "open the folder %s: %w", folder, err)
	}
	return fd, nil
}

// walk shows every file below an open folder, and the folder itself last.
func walk(folder int, path string, depth int, do func(entry) error) error {
	e := entry{fd: folder, path: path}
	if err := unix.Fstat(folder, &e.st); err != nil {
		return reason.New(reason.BotUserTree, "look at %s: %w", path, err)
	}
	if depth > maxDepth {
		return reason.New(reason.BotUserTree, "%s: folders more than %d deep", path, maxDepth)
	}
	names, err := namesOf(folder)
	if err != nil {
		return reason.New(reason.BotUserTree, "list %s: %w", path, err)
	}
	for _, name := range names {
		if err := below(folder, name, filepath.Join(path, name), e.st.Dev, depth, do); err != nil {
			return err
		}
	}
	return do(e)
}

func below(folder int, name, path string, dev uint64, depth int, do func(entry) error) error {
	e := entry{path: path}
	var err error
	e.fd, err = unix.Openat(folder, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // gone meanwhile
	}
	if err != nil {
		return reason.New(reason.BotUserTree, "open %s: %w", path, err)
	}
	defer unix.Close(e.fd)
	if err := unix.Fstat(e.fd, &e.st); err != nil {
		return reason.New(reason.BotUserTree, "look at %s: %w", path, err)
	}
	if e.st.Dev != dev {
		return reason.New(reason.BotUserTree, "%s is of another file system", path)
	}
	if e.kind() != unix.S_IFDIR {
		return do(e)
	}
	fd, err := unix.Openat(e.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return reason.New(reason.BotUserTree, "open %s: %w", path, err)
	}
	defer unix.Close(fd)
	return walk(fd, path, depth+1, do)
}

func namesOf(folder int) ([]string, error) {
	fd, err := unix.Openat(folder, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "folder")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	sort.Strings(names)
	return names, err
}
