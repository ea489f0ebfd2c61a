package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attempt is one way. Where the kernel looks for permission before it looks at
// what was asked for, the latter is nonsense, and nonsense is the answer of one
// that was let in.
type attempt struct {
	name string
	do   func(pid int) error
	in   error // what also means that it was let in
}

func read(file string) func(int) error {
	return func(pid int) error {
		f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			return err
		}
		defer f.Close()
		if file == "mem" {
			return nil // its first byte is mapped nowhere
		}
		if _, err = f.Read(make([]byte, 1)); err == io.EOF { // of an empty environment
			return nil
		}
		return err
	}
}

func follow(link string) func(int) error {
	return func(pid int) error {
		_, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, link))
		return err
	}
}

func call(number uintptr, args func(pid uintptr) [6]uintptr) func(int) error {
	return func(pid int) error {
		a := args(uintptr(pid))
		if _, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
			return errno
		}
		return nil
	}
}

var nowhere = unix.RemoteIovec{Base: 1, Len: 1}
var here = unix.Iovec{Base: &make([]byte, 1)[0], Len: 1}

func foreign(pid uintptr) [6]uintptr {
	return [6]uintptr{pid, uintptr(unsafe.Pointer(&here)), 1, uintptr(unsafe.Pointer(&nowhere)), 1, 0}
}

var attempts = []attempt{
	{name: "signal", do: func(pid int) error { return unix.Kill(pid, 0) }},
	{name: "signal a thread", do: func(pid int) error { return unix.Tgkill(pid, pid, 0) }},
	{name: "signal by descriptor", do: func(pid int) error {
		return byDescriptor(pid, func(fd int) error { return unix.PidfdSendSignal(fd, 0, nil, 0) })
	}},
	{name: "take a file", do: func(pid int) error {
		return byDescriptor(pid, func(fd int) error { _, err := unix.PidfdGetfd(fd, 0, 0); return err })
	}},
	{name: "environ", do: read("environ")}, {name: "mem", do: read("mem")}, {name: "maps", do: read("maps")}, {name: "auxv", do: read("auxv")},
	{name: "io", do: read("io")}, {name: "syscall", do: read("syscall")},
	{name: "cwd", do: follow("cwd")}, {name: "root", do: follow("root")}, {name: "exe", do: follow("exe")}, {name: "ns", do: follow("ns/mnt")}, {name: "fd 0", do: follow("fd/0")},
	{name: "list files", do: func(pid int) error { _, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); return err }},
	{name: "trace", do: call(unix.SYS_PTRACE, func(pid uintptr) [6]uintptr { return [6]uintptr{unix.PTRACE_SEIZE, pid} })},
	{name: "read memory", do: call(unix.SYS_PROCESS_VM_READV, foreign), in: unix.EFAULT},
	{name: "write memory", do: call(unix.SYS_PROCESS_VM_WRITEV, foreign), in: unix.EFAULT},
	{name: "limits", do: func(pid int) error { return unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &unix.Rlimit{}) }},
	{name: "priority", do: func(pid int) error {
		now, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
		return errors.Join(err, unix.Setpriority(unix.PRIO_PROCESS, pid, 20-now)) // the call gives 20 less the value
	}},
	{name: "processors", do: func(pid int) error {
		var set unix.CPUSet
		return errors.Join(unix.SchedGetaffinity(pid, &set), unix.SchedSetaffinity(pid, &set))
	}},
	{name: "out of memory score", do: func(pid int) error {
		path := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
		now, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(path, now, 0))
	}},
}

func byDescriptor(pid int, do func(fd int) error) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return do(fd)
}
