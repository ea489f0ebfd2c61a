package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// own gives the folder of this process's cgroup, of the text of
// /proc/self/cgroup and of /proc/self/mountinfo.
func own(cgroups, mounts string) (string, error) {
	path, found := "", false
	for line := range strings.Lines(cgroups) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			path, found = strings.TrimSuffix(rest, "\n"), true
		}
	}
	if !found || !strings.HasPrefix(path, "/") || within("/..", path) {
		return "", errors.New("this process is in no cgroup of version 2 that it can see")
	}
	for line := range strings.Lines(mounts) {
		front, back, ok := strings.Cut(line, " - ")
		at := strings.Fields(front)
		if !ok || len(at) < 6 || !strings.HasPrefix(back, "cgroup2 ") {
			continue
		}
		if root := unescape.Replace(at[3]); within(root, path) {
			return filepath.Join(unescape.Replace(at[4]), strings.TrimPrefix(path, root)), nil
		}
	}
	return "", errors.New("no cgroup2 file system that shows this process's cgroup is mounted")
}

// unescape undoes what the kernel does to the bytes that part mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// within tells whether path is dir or below it.
func within(dir, path string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

// kernel is a cgroup file system. Its files are there when their folder is
// made, and a folder is removed with the files in it.
type kernel interface {
	read(path string) (string, error)
	write(path, value string) error
	mkdir(path string) error
	rmdir(path string) error
}

type mounted struct{}

func (mounted) read(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

// write makes no file: one that is not there is one that this kernel lacks.
func (mounted) write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (mounted) mkdir(path string) error { return os.Mkdir(path, 0o755) }
func (mounted) rmdir(path string) error { return os.Remove(path) }
