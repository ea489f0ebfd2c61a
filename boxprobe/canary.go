package main

import (
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"
)

// asker starts another program as whoever asks for a box does, with all that it
// was given itself, and stays its parent until it is killed.
func asker(args []string) bool {
	if len(args) < 4 || args[0] != "asker" {
		return false
	}
	runtime.LockOSThread() // the death signal of a child is its parent thread's affair
	count, err := strconv.Atoi(args[1])
	if err != nil || count < 3 {
		return false
	}
	var files []uintptr
	for fd := range count {
		files = append(files, uintptr(fd))
	}
	pid, err := syscall.ForkExec(args[2], args[3:], &syscall.ProcAttr{Env: []string{}, Files: files})
	exitOn(err)
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			return true
		}
	}
}

// canary is what the probe must not find: a process outside every box, with
// the words after the first as its mark. It answers what it is told, so that
// its starter sees that it runs, and ends when its starter does.
func canary(args []string) bool {
	if len(args) == 0 || args[0] != "canary" {
		return false
	}
	io.Copy(os.Stdout, os.Stdin)
	return true
}
