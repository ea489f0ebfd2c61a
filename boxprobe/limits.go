package main

import (
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func limitExtras() []Check {
	return []Check{
		{"P17", limits, full, "read the size limit of core dumps", "0, also the hard one", []string{"core-on"},
			"inside: the limit can be read", noCoreDumps},
		{"L02", limits, full, "look for a writable tmpfs without a size", "none", []string{"no-limits", "writable-dev"},
			"inside: /tmp is among the tmpfs mounts", everyTmpfsSized},
		{"L01", limits, full, "start processes, one more than the box may have", "EAGAIN before that", []string{"no-limits"},
			"inside: the first can be started", noForkBomb},
		{"L03", limits, full, "open files, one more than the box may have", "EMFILE before that", []string{"no-limits"},
			"inside: the first can be opened", noFileFlood},
	}
}

// noForkBomb forks without exec: a Go program for each of them takes an
// emulated processor longer than a check may take. All have ended when it
// returns.
func noForkBomb(f *Fixture) Result {
	if f.Pids == 0 {
		return unclear("the fixture names no limit")
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return unclear("make a pipe: %v", err)
	}
	defer unix.Close(pipe[1])
	defer unix.Close(pipe[0])
	var started []int
	defer func() {
		for _, pid := range started {
			unix.Kill(pid, unix.SIGKILL)
			unix.Wait4(pid, nil, 0, nil)
		}
	}()
	for range f.Pids + 1 {
		pid, err := forkIdle(pipe[0], pipe[1])
		switch {
		case err == 0:
			started = append(started, pid)
		case err == unix.EAGAIN && len(started) > 0:
			return pass("the limit of %d processes and threads holds", f.Pids)
		default:
			return unclear("start process %d: %v", len(started)+1, errno(err))
		}
	}
	return fail("%d more processes run than the box may have", len(started))
}

// forkIdle starts a process that waits for the end of the pipe's last writer,
// its parent. There is no Go in the child, nor any thread that could run it:
// only system calls, on a stack that must not grow.
//
//go:norace
//go:nosplit
func forkIdle(read, write int) (pid int, err unix.Errno) {
	child, _, err := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
	if child != 0 || err != 0 {
		return int(child), err
	}
	unix.RawSyscall(unix.SYS_CLOSE, uintptr(write), 0, 0)
	var end byte
	unix.RawSyscall(unix.SYS_READ, uintptr(read), uintptr(unsafe.Pointer(&end)), 1)
	for {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

func noFileFlood(f *Fixture) Result {
	if f.Nofile == 0 {
		return unclear("the fixture names no limit")
	}
	var open []int
	defer func() {
		for _, fd := range open {
			unix.Close(fd)
		}
	}()
	for range f.Nofile + 1 {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			open = append(open, fd)
		case err == unix.EMFILE && len(open) > 0:
			return pass("the limit of %d open files holds", f.Nofile)
		default:
			return unclear("open file %d: %v", len(open)+1, err)
		}
	}
	return fail("%d files are open at once", len(open))
}

// noCoreDumps matters because a core pattern that is a pipe runs a program as
// the machine's root on every crash in a box.
func noCoreDumps(*Fixture) Result {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return unclear("read it: %v", err)
	}
	if limit.Cur != 0 || limit.Max != 0 {
		return fail("%d of at most %d bytes", limit.Cur, limit.Max)
	}
	if pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern"); err == nil && strings.HasPrefix(string(pattern), "|") {
		return pass("0, which matters here: this machine gives core files to a program that root runs")
	}
	return pass("0")
}

// everyTmpfsSized reads the mounts' options.
func everyTmpfsSized(*Fixture) Result {
	all, err := readMounts()
	if err != nil {
		return unclear("read the list of mounts: %v", errno(err))
	}
	seenTmp, count := false, 0
	for _, m := range privateTmpfs(all) {
		if unix.Access(m.point, unix.W_OK) != nil {
			continue
		}
		count++
		seenTmp = seenTmp || m.point == "/tmp"
		if !m.sized() {
			return fail("%s may take half of the machine's memory", m.point)
		}
	}
	if !seenTmp {
		return unclear("/tmp is no tmpfs that we can write")
	}
	return pass("all %d have one", count)
}

// privateTmpfs gives those that were made for this box. A folder of the
// machine's that was let in may be on a tmpfs of the machine's, below its root;
// how much that holds was decided before there was a box.
func privateTmpfs(all []mount) (private []mount) {
	for _, m := range all {
		if m.fstype == "tmpfs" && m.root == "/" {
			private = append(private, m)
		}
	}
	return private
}

// sized: the kernel shows a size unless it is the default, half of the memory.
func (m mount) sized() bool {
	return strings.Contains(","+strings.Join(m.super, ","), ",size=")
}
