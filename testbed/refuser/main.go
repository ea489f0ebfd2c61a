// Refuser runs a command under a system-call filter of a container or service:
//
//	refuser {namespaces | mount | hostname} CMD ARG…
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"
)

const (
	prSetNoNewPrivs = 38
	prSetSeccomp    = 22
	modeFilter      = 2

	retAllow = 0x7fff0000
	retEPERM = 0x00050000 | uint32(syscall.EPERM)

	load   = syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS
	equal  = syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K
	anySet = syscall.BPF_JMP | syscall.BPF_JSET | syscall.BPF_K
	answer = syscall.BPF_RET | syscall.BPF_K

	number, argument = 0, 16 // in the kernel's struct seccomp_data

	newAny = 0x7e020000 // CLONE_NEW* of clone and unshare
)

var filters = map[string][]syscall.SockFilter{
	"namespaces": {
		{Code: load, K: number},
		{Code: equal, Jt: 2, K: syscall.SYS_CLONE},
		{Code: equal, Jt: 1, K: syscall.SYS_UNSHARE},
		{Code: answer, K: retAllow},
		{Code: load, K: argument},
		{Code: anySet, Jt: 1, K: newAny},
		{Code: answer, K: retAllow},
		{Code: answer, K: retEPERM},
	},
	"hostname": {
		{Code: load, K: number},
		{Code: equal, Jt: 1, K: syscall.SYS_SETHOSTNAME},
		{Code: answer, K: retAllow},
		{Code: answer, K: retEPERM},
	},
	"mount": {
		{Code: load, K: number},
		{Code: equal, Jt: 1, K: syscall.SYS_MOUNT},
		{Code: answer, K: retAllow},
		{Code: answer, K: retEPERM},
	},
}

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "refuser:", err)
		os.Exit(1)
	}
}

func run(filter string, argv []string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	rules := filters[filter]
	program := syscall.SockFprog{Len: uint16(len(rules)), Filter: &rules[0]}
	runtime.LockOSThread() // a filter is a thread's, and exec keeps this one's
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetSeccomp, modeFilter, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return errno
	}
	return syscall.Exec(path, argv, os.Environ())
}
