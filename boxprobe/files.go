package main

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func fileChecks() []Check {
	const expect, outside = "ENOENT", "outside: the file can be read at this path by the same user"
	bind := []string{"bind-data"}
	return []Check{
		{"D1", mounts, seed, "read messages.db by three spellings of its path", expect, bind, outside,
			func(f *Fixture) Result { return unreadable(f.Database, f.Marker) }},
		{"D2", mounts, seed, "read config.json by three spellings of its path", expect, bind, outside,
			func(f *Fixture) Result { return unreadable(f.Config, f.Marker) }},
		{"D3", mounts, seed, "read a login of the server by three spellings of its path", expect, bind, outside,
			func(f *Fixture) Result { return unreadable(f.Login, f.Marker) }},
		{"D4", mounts, seed, "connect to the server's socket", expect, bind, "outside: a connect is answered",
			func(f *Fixture) Result { return noSocket(f.ServerSocket) }},
		{"D5", mounts, seed, "read a file of another bot", expect, bind, outside,
			func(f *Fixture) Result { return unreadable(f.OtherBotFile, f.Marker) }},
		{"D6", mounts, seed, "read another conversation's hook token", expect, bind, outside,
			func(f *Fixture) Result { return unreadable(f.OtherToken, f.Marker) }},
		{"D7", mounts, seed, "list the data folder", "nothing but what was put back", bind,
			"outside: the folder holds more names", onlyPutBacks},
	}
}

func tmpChecks() []Check {
	mutation := []string{"tmp-shared"}
	const control = "outside: the file is there before and after; inside: the folder can be written"
	return []Check{
		{"T1", privateTmp, seed, "read another turn's file in /tmp", "ENOENT", mutation, control,
			func(f *Fixture) Result { return worst(ownFolder("/tmp"), unreadable(f.TmpFile, f.Marker)) }},
		{"T2", privateTmp, seed, "read another turn's files in /var/tmp and /run", "ENOENT", mutation, control,
			func(f *Fixture) Result {
				return worst(ownFolder("/var/tmp"), unreadable(f.VarTmpFile, f.Marker), unreadable(f.RunFile, f.Marker))
			}},
	}
}

func fileExtras() []Check {
	return []Check{
		{"F11", mounts, full, "walk /sys", "two files about CPUs and nothing else", []string{"bind-sys"},
			"inside: the walk finds what F12 reads, or there is no /sys at all", onlyTwoOfSys},
		{"F18", mounts, full, "look for a mount on which a setuid bit would count", "none", nil,
			"inside: the list of mounts can be read and is not empty", everyMountNosuid},
	}
}

// unreadable tries to read a file that must not be in the box. That it is
// absent proves something only because the fixture vouches that it is there
// outside.
func unreadable(path, marker string) Result {
	if !filepath.IsAbs(path) {
		return unclear("the fixture names no such file")
	}
	dir, name := filepath.Split(path)
	for _, spelling := range []string{path, "/proc/self/root" + path, dir + "../" + filepath.Base(dir) + "/" + name} {
		content, err := os.ReadFile(spelling)
		switch {
		case err == nil && bytes.Contains(content, []byte(marker)):
			return fail("it can be read")
		case err == nil:
			return unclear("something else lies at its path")
		case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
			return pass("it is there, but closed to us: only its permissions stand between")
		case !errors.Is(err, unix.ENOENT):
			return unclear("read: %v", errno(err))
		}
	}
	return pass("absent by three spellings")
}

func noSocket(path string) Result {
	if path == "" {
		return unclear("the fixture names no socket")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		conn.Close()
		return fail("the server's socket answers")
	case errors.Is(err, unix.ENOENT):
		return pass("absent")
	case errors.Is(err, unix.EACCES):
		return pass("it is there, but closed to us: only its permissions stand between")
	default:
		return unclear("connect: %v", errno(err))
	}
}

func onlyPutBacks(f *Fixture) Result {
	if f.DataDir == "" {
		return unclear("the fixture names no data folder")
	}
	entries, err := os.ReadDir(f.DataDir)
	if errors.Is(err, unix.ENOENT) {
		return pass("there is no such folder")
	}
	if err != nil {
		return unclear("list it: %v", errno(err))
	}
	for _, entry := range entries {
		if !slices.Contains(f.PutBacks, entry.Name()) {
			return fail("it holds %q, which nobody put back", entry.Name())
		}
	}
	return pass("it holds %d names, all put back", len(entries))
}

// ownFolder writes into a private folder: a folder that nobody can use would
// hide other turns' files as well.
func ownFolder(dir string) Result {
	file, err := os.CreateTemp(dir, "boxprobe")
	if err != nil {
		return unclear("%s cannot be used: %v", dir, errno(err))
	}
	file.Close()
	os.Remove(file.Name())
	return pass("%s can be used", dir)
}

const cpuDir = "/sys/devices/system/cpu"

func onlyTwoOfSys(*Fixture) Result {
	want := []string{cpuDir + "/online", cpuDir + "/possible"}
	if _, err := os.Lstat("/sys"); errors.Is(err, unix.ENOENT) {
		return pass("there is no /sys")
	}
	var other string
	found := 0
	err := filepath.WalkDir("/sys", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case slices.Contains(want, path):
			found++
		case !strings.HasPrefix(cpuDir+"/", path+"/"):
			other = path
			return fs.SkipAll
		}
		return nil
	})
	if other != "" {
		return fail("%s is there", other)
	}
	if err != nil || found == 0 {
		return unclear("the walk of /sys found nothing: %v", errno(err))
	}
	return pass("nothing else is there")
}

func everyMountNosuid(*Fixture) Result {
	all, err := readMounts()
	if err != nil || len(all) == 0 {
		return unclear("read the list of mounts: %v", err)
	}
	for _, m := range all {
		if !slices.Contains(m.options, "nosuid") {
			return fail("a setuid bit counts on %s", m.point)
		}
	}
	return pass("all %d mounts are nosuid", len(all))
}

// mount is a line of mountinfo, as far as we read it.
type mount struct {
	root, point, fstype string // root is what of the file system is mounted there
	options, super      []string
	device              string // major:minor of the file system
}

func readMounts() ([]mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	return parseMounts(string(text)), err
}

// parseMounts leaves out lines that are not of the kernel's form.
func parseMounts(text string) []mount {
	var all []mount
	for line := range strings.Lines(text) {
		front, back, ok := strings.Cut(line, " - ")
		f, b := strings.Fields(front), strings.Fields(back)
		if !ok || len(f) < 6 || len(b) < 3 {
			continue
		}
		all = append(all, mount{f[3], f[4], b[0], strings.Split(f[5], ","), strings.Split(b[2], ","), f[2]})
	}
	return all
}

// errno gives the kernel's word for an error, without the path that Go adds:
// a path may hold what a report must not.
func errno(err error) error {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return err
}
