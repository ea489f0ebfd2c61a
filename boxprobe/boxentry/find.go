package main

import (
	"strings"

	"golang.org/x/sys/unix"
)

// defaultPath is where commands are looked for when PATH is not set.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// find looks a command up as a shell does, in the box's own PATH. The error is
// ENOENT when there is none, EACCES when there is one that cannot be run.
func find(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, runnable(name)
	}
	if path == "" {
		path = defaultPath
	}
	var found error = unix.ENOENT
	for _, dir := range strings.Split(path, ":") {
		if !strings.HasPrefix(dir, "/") {
			continue // a relative entry would run what lies in the work folder
		}
		candidate := dir + "/" + name
		err := runnable(candidate)
		if err == nil {
			return candidate, nil
		}
		if err == unix.EACCES {
			found = err
		}
	}
	return "", found
}

func runnable(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		if err == unix.ENOTDIR {
			return unix.ENOENT
		}
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return unix.EACCES
	}
	return unix.Access(path, unix.X_OK)
}
