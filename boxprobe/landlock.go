package main

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/boxprobe/internal/landlock"
)

func landlockExtras() []Check {
	mutation := []string{"no-landlock"}
	return []Check{
		{"S15", wall, full, "make a folder, a file, a link, a pipe and a socket on a writable mount that the box was not given to write", "EACCES", mutation,
			"outside: the folder can be written; inside: its mount can", secondWall},
		{"S16", wall, full, "signal our parent, which the engine's confinement leaves out (signal 0)", "EPERM", mutation,
			"inside: we can signal ourselves, and our parent is there", noSignalOut},
	}
}

// secondWall wants the refusal of Landlock, not of a mount: that one says
// EROFS. A kernel without Landlock has one wall; the fixture says so, and so
// does the report.
func secondWall(f *Fixture) Result {
	if f.Walled == "" {
		return unclear("the fixture names no folder to try")
	}
	if f.Landlock < landlock.MinVersion {
		return pass("this kernel has no Landlock for it (version %d): the mounts are the only wall", f.Landlock)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(f.Walled, &st); err != nil || st.Flags&unix.ST_RDONLY != 0 {
		return unclear("the folder is not on a writable mount here: %v", err)
	}
	for _, kind := range madeThings {
		path := filepath.Join(f.Walled, "boxprobe-"+strconv.Itoa(os.Getpid()))
		err := kind.make(path)
		unix.Unlinkat(unix.AT_FDCWD, path, kind.remove)
		switch err {
		case nil:
			return fail("%s could be made on the mount", kind.name)
		case unix.EACCES:
		default:
			return unclear("make %s: %v", kind.name, err)
		}
	}
	return pass("%d kinds of things refused, though the mount is writable", len(madeThings))
}

// madeThings are what a folder can hold: each is a right of Landlock's own.
var madeThings = []struct {
	name   string
	make   func(path string) error
	remove int
}{
	{"a folder", func(path string) error { return unix.Mkdir(path, 0o700) }, unix.AT_REMOVEDIR},
	{"a file", func(path string) error {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}, 0},
	{"a link", func(path string) error { return unix.Symlink("/", path) }, 0},
	{"a pipe", func(path string) error { return unix.Mkfifo(path, 0o600) }, 0},
	{"a socket", func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) }, 0},
}

// noSignalOut tries the one process of our user that is in the box and was
// not confined: the bubblewrap that started the engine.
func noSignalOut(f *Fixture) Result {
	if f.Landlock < landlock.WithScope {
		return pass("this kernel's Landlock bounds no signals (version %d): the process namespace alone does", f.Landlock)
	}
	if err := unix.Kill(os.Getpid(), 0); err != nil {
		return unclear("we cannot signal ourselves: %v", err)
	}
	switch err := unix.Kill(os.Getppid(), 0); err {
	case nil:
		return fail("our parent can be signalled")
	case unix.EPERM:
		return pass("refused")
	default:
		return unclear("signal our parent: %v", err)
	}
}
