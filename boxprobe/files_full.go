package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func fileRows() []Check {
	const outside = "outside: the file can be read at this path by the same user"
	return []Check{
		{"F05", mounts, full, "read our own hook token, and open it for writing", "its content; EROFS", []string{"token-rw"},
			"inside: it can be read", ownToken},
		{"F08", writable, full, "make a folder in /", "EROFS", []string{"writable-root"},
			"inside: /tmp can be written", func(*Fixture) Result { return worst(ownFolder("/tmp"), refusedWrite("/", unix.EROFS)) }},
		{"F28", writable, full, "make a folder among the devices", "EROFS", []string{"writable-dev"},
			"inside: /dev/shm can be written", func(*Fixture) Result { return worst(ownFolder("/dev/shm"), refusedWrite("/dev", unix.EROFS)) }},
		{"F10", privateTmp, full, "leave files in /tmp and /var/tmp", "they are seen in no folder outside", []string{"tmp-shared"},
			"inside: they can be written and read", leavesFiles},
		{"F29", privateTmp, full, "read another turn's file in /dev/shm", "ENOENT", []string{"shm-shared"},
			"outside: the file is there before and after; inside: the folder can be written",
			func(f *Fixture) Result { return worst(ownFolder("/dev/shm"), unreadable(f.ShmFile, f.Marker)) }},
		{"F30", writable, full, "leave a file in HOME", "it is not in the account's", []string{"bind-home"},
			"inside: it can be written and read", leavesInHome},
		{"F31", mounts, full, "open the file that our command line names for writing", "EROFS", []string{"argv-rw"},
			"inside: it can be read", func(f *Fixture) Result { return readOnly(f.path) }},
		{"F32", mounts, full, "write, rename and replace the box's first program", "EROFS; EBUSY", []string{"entry-rw"},
			"inside: it is there", entryHolds},
		{"F12", mounts, full, "read the two files about CPUs, and open them for writing", "their content; EROFS", []string{"no-cpu-files"},
			"outside: they are there", cpuFiles},
		{"F13", mounts, full, "look for /.fly", "ENOENT", []string{"bind-fly"},
			"outside: what stands in for it can be read", flyAbsent},
		{"F14", mounts, full, "read a file of the account's HOME; list /root and /home", "ENOENT, and nobody's folder", []string{"bind-home"},
			outside, otherHomes},
		{"F19", mounts, full, "look for a mount of the data folder, of HOME, or of a folder above one", "none", []string{"bind-data", "bind-home"},
			"inside: the work folder is found by the same look", nothingAbove},
		{"F20", mounts, full, "rename and remove the masks and what git keeps", "EBUSY", []string{"no-pins", "git-open"},
			"inside: a folder of our own can be renamed and removed", masksHold},
		{"F27", writable, full, "write git's hooks and settings in the bot's folder", "EROFS", []string{"git-open"},
			"inside: another file there can be written", gitClosed},
		{"F23", mounts, full, "read a folder that was exchanged for a link after it was checked", "the folder that was checked", []string{"bind-by-path"},
			"outside: its path leads to another folder by now", checkedFolder},
	}
}

// readOnly opens a file for writing, and writes nothing. Where the mount is not
// the wall, what refuses is another one, behind it.
func readOnly(path string) Result {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
		unix.Close(fd)
		return fail("%s can be written", path)
	case unix.EROFS:
		return pass("it can be read, and its mount is read-only")
	case unix.ENOENT, unix.ENOTDIR:
		return unclear("%s: %v", path, err)
	case unix.EACCES: // the kernel asks for a file's own permissions first
		if mountedReadOnly(path) {
			return pass("it can be read, and its mount is read-only")
		}
	}
	return fail("the mount of %s can be written: only %v keeps us out", path, err)
}

func ownToken(f *Fixture) Result {
	if f.OwnToken == "" {
		return unclear("the fixture names no token")
	}
	text, err := os.ReadFile(f.OwnToken)
	if err != nil || !bytes.Contains(text, []byte(f.Marker)) {
		return unclear("our own token cannot be read: %v", errno(err))
	}
	return readOnly(f.OwnToken)
}

// leavesFiles writes into the folders in which the canaries are outside: in a
// box with a private /tmp they have to be made first. botbox check looks for
// what was written.
func leavesFiles(f *Fixture) Result {
	if f.TmpFile == "" || f.VarTmpFile == "" {
		return unclear("the fixture names no folder")
	}
	var results []Result
	for _, canary := range []string{f.TmpFile, f.VarTmpFile} {
		results = append(results, leaves(f, filepath.Join(filepath.Dir(canary), "boxprobe.f10")))
	}
	return worst(results...)
}

func leaves(f *Fixture, path string) Result {
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(f.Marker), 0o600))
	text, readErr := os.ReadFile(path)
	if err != nil || readErr != nil || string(text) != f.Marker {
		return unclear("a file cannot be left: %v", errno(errors.Join(err, readErr)))
	}
	return pass("a file was left")
}

// leavesInHome knows HOME by the account's, at whose path the box has its own.
func leavesInHome(f *Fixture) Result {
	if f.HomeFile == "" {
		return unclear("the fixture names no HOME")
	}
	return leaves(f, filepath.Join(filepath.Dir(filepath.Dir(f.HomeFile)), "boxprobe.f30"))
}

// entryHolds tries the one program of ours that stays in a box: what runs ssh
// there calls it.
func entryHolds(*Fixture) Result {
	const entry = "/run/botbox/boxentry"
	if _, err := os.Stat(entry); err != nil {
		return unclear("it is not there: %v", errno(err))
	}
	for _, try := range []error{unix.Rename(entry, entry+"-moved"), unix.Unlink(entry), unix.Rename(os.Args[0], entry)} {
		if try != unix.EBUSY && try != unix.EROFS {
			return fail("it can be moved or replaced: %v", try)
		}
	}
	return readOnly(entry)
}

func cpuFiles(f *Fixture) Result {
	if len(f.CPUFiles) == 0 {
		return pass("this machine has none either")
	}
	var results []Result
	for _, path := range f.CPUFiles {
		text, err := os.ReadFile(path)
		if err != nil || len(text) == 0 {
			return fail("%s cannot be read: programs that count CPUs there stop", path)
		}
		results = append(results, readOnly(path))
	}
	return worst(results...)
}

func flyAbsent(*Fixture) Result {
	if _, err := os.ReadDir("/"); err != nil {
		return unclear("list /: %v", errno(err))
	}
	switch _, err := os.Lstat("/.fly"); {
	case err == nil:
		return fail("it is there")
	case errors.Is(err, unix.ENOENT):
		return pass("absent")
	default:
		return unclear("look: %v", errno(err))
	}
}

// otherHomes lets a listing of /home hold what leads to the box's own folders.
func otherHomes(f *Fixture) Result {
	if r := unreadable(f.HomeFile, f.Marker); r.Verdict != Pass {
		return r
	}
	all, err := readMounts()
	if err != nil || len(all) == 0 {
		return unclear("read the list of mounts: %v", errno(err))
	}
	for _, dir := range []string{"/root", "/home"} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fail("%s is there, and only %v keeps it closed", dir, errno(err))
		}
		for _, entry := range entries {
			path := filepath.Join(dir, entry.Name())
			if !slices.ContainsFunc(all, func(m mount) bool { return within(m.point, path) || within(path, m.point) && m.point != "/" }) {
				return fail("%s is there", path)
			}
		}
	}
	return pass("the file is absent, and nobody else's folder is there")
}

// within tells whether path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// nothingAbove reads which folder of which file system each mount shows: in
// the list a folder cannot hide under another name.
func nothingAbove(f *Fixture) Result {
	all, err := readMounts()
	if err != nil || len(all) == 0 {
		return unclear("read the list of mounts: %v", errno(err))
	}
	work := false
	for _, m := range all {
		for _, closed := range f.Closed {
			if device, root, _ := strings.Cut(closed, " "); m.device == device && within(root, m.root) {
				return fail("%s shows what no box may see", m.point)
			}
		}
		work = work || f.WorkSource == m.device+" "+m.root
	}
	if len(f.Closed) == 0 || !work {
		return unclear("not even the work folder is found in the list of mounts")
	}
	return pass("none of %d mounts does", len(all))
}

// masksHold renames each mount point and removes it. Who could do either to
// the folder above a protected one would have it out of the way.
func masksHold(f *Fixture) Result {
	if f.DataDir == "" || f.BotDir == "" {
		return unclear("the fixture names no mask")
	}
	own, err := os.MkdirTemp("/tmp", "boxprobe")
	if err != nil {
		return unclear("/tmp cannot be used: %v", errno(err))
	}
	if err := errors.Join(os.Rename(own, own+"-moved"), os.Remove(own+"-moved")); err != nil {
		return unclear("a folder of our own cannot be renamed: %v", errno(err))
	}
	git := filepath.Join(f.BotDir, ".git")
	for _, path := range []string{f.DataDir, git, filepath.Join(git, "hooks"), filepath.Join(git, "config")} {
		moved := filepath.Join(filepath.Dir(path), "boxprobe-moved")
		err := unix.Rename(path, moved)
		if err == nil {
			unix.Rename(moved, path)
			return fail("%s can be renamed", path)
		}
		if err != unix.EBUSY && err != unix.EROFS {
			return unclear("rename %s: %v", path, err)
		}
		if err := unix.Rmdir(path); err == nil {
			return fail("%s can be removed", path)
		}
	}
	return pass("four cannot be renamed and not be removed")
}

func gitClosed(f *Fixture) Result {
	git := filepath.Join(f.BotDir, ".git")
	if _, err := os.Stat(git); f.BotDir == "" || err != nil {
		return unclear("there is no repository in the bot's folder: %v", errno(err))
	}
	return worst(readOnly(filepath.Join(git, "config")), refusedWrite(filepath.Join(git, "hooks"), unix.EROFS),
		refusedWrite(filepath.Join(git, "info"), unix.EROFS))
}

func checkedFolder(f *Fixture) Result {
	if f.Swapped == "" {
		return unclear("the fixture names no folder")
	}
	text, err := os.ReadFile(filepath.Join(f.Swapped, "which"))
	switch {
	case err != nil:
		return unclear("read it: %v", errno(err))
	case string(text) == "checked "+f.Marker:
		return pass("it is the one that was checked")
	}
	return fail("another folder is there than the one that was checked: %s", strconv.Quote(string(text[:min(len(text), 7)])))
}
