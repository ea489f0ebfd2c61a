package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// resourceChecks use a limit up, beyond L01 to L03.
func resourceChecks() []Check {
	mutation := []string{"no-limits"}
	return []Check{
		{"L04", limits, full, "read our score for the moment when memory is short", "500 at least, so that a box dies before the worker", []string{"keep-score"},
			"inside: it can be read", diesFirst},
		{"L05", limits, full, "fill /tmp", "ENOSPC at its size", mutation, "inside: the first block can be written", tmpIsBounded},
		{"L06", limits, full, "write beyond the size of the largest file", "EFBIG", mutation, "inside: a byte below it can be written", fileIsBounded},
		{"L07", limits, full, "raise each limit above what the box was given", "EPERM", mutation, "inside: each can be set to what it is", limitsStay},
	}
}

func diesFirst(*Fixture) Result {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return unclear("read it: %v", errno(err))
	}
	switch score, err := strconv.Atoi(strings.TrimSpace(string(text))); {
	case err != nil:
		return unclear("it is no number")
	case score < 500:
		return fail("it is %d", score)
	default:
		return pass("it is %d", score)
	}
}

// tmpIsBounded writes zeros into memory, and gives it back.
func tmpIsBounded(f *Fixture) Result {
	if f.TmpMB == 0 {
		return unclear("the fixture names no size")
	}
	name := filepath.Join("/tmp", "boxprobe-fill")
	var fds []int
	defer func() {
		for i, fd := range fds {
			unix.Close(fd)
			os.Remove(name + strconv.Itoa(i))
		}
	}()
	// In several files: no single one may be large.
	block := make([]byte, 1<<20)
	for n := range f.TmpMB + 1 {
		if n%8 == 0 {
			fd, err := unix.Open(name+strconv.Itoa(len(fds)), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
			if err != nil {
				return unclear("make a file: %v", err)
			}
			fds = append(fds, fd)
		}
		written, err := unix.Write(fds[len(fds)-1], block)
		switch {
		case n == 0 && err != nil:
			return unclear("write the first block: %v", err)
		case err == unix.ENOSPC, err == nil && written < len(block):
			return pass("full at %d MiB of %d", n, f.TmpMB)
		case err != nil:
			return unclear("write block %d: %v", n, err)
		}
	}
	return fail("%d MiB could be written", f.TmpMB+1)
}

// fileIsBounded writes one byte on either side of the limit: a hole takes no
// room.
func fileIsBounded(f *Fixture) Result {
	if f.FileMB == 0 {
		return unclear("the fixture names no size")
	}
	signal.Ignore(unix.SIGXFSZ) // or the kernel would end us
	defer signal.Reset(unix.SIGXFSZ)
	file, err := os.CreateTemp("/tmp", "boxprobe")
	if err != nil {
		return unclear("make a file: %v", errno(err))
	}
	defer os.Remove(file.Name())
	defer file.Close()
	end := int64(f.FileMB) << 20
	if _, err := file.WriteAt([]byte{1}, end-1); err != nil {
		return unclear("write the last byte that it may have: %v", errno(err))
	}
	switch _, err := file.WriteAt([]byte{1}, end); {
	case err == nil:
		return fail("a file may be larger than %d MiB", f.FileMB)
	case errors.Is(err, unix.EFBIG):
		return pass("%d MiB and no byte more", f.FileMB)
	default:
		return unclear("write beyond: %v", errno(err))
	}
}

// limitsStay asks for one more than it was given; what it has it may set.
func limitsStay(f *Fixture) Result {
	if f.Pids == 0 || f.Nofile == 0 || f.FileMB == 0 {
		return unclear("the fixture names no limits")
	}
	for _, l := range []struct {
		name  string
		what  int
		given uint64
	}{
		{"processes", unix.RLIMIT_NPROC, uint64(f.Pids)},
		{"open files", unix.RLIMIT_NOFILE, uint64(f.Nofile)},
		{"the size of a file", unix.RLIMIT_FSIZE, uint64(f.FileMB) << 20},
	} {
		var now unix.Rlimit
		err := unix.Getrlimit(l.what, &now)
		if err == nil {
			err = unix.Setrlimit(l.what, &now)
		}
		if err != nil {
			return unclear("set the limit of %s to what it is: %v", l.name, err)
		}
		raised := unix.Rlimit{Cur: l.given + 1, Max: max(now.Max, l.given+1)}
		switch err := unix.Setrlimit(l.what, &raised); err {
		case unix.EPERM:
		case nil:
			unix.Setrlimit(l.what, &now)
			return fail("the limit of %s can be raised", l.name)
		default:
			return unclear("raise the limit of %s: %v", l.name, fmt.Sprint(err))
		}
	}
	return pass("none can be raised")
}
