package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// What keyctl does, and the keyring that it does it to.
const (
	joinSession = 1
	clearRing   = 7
	search      = 10
)

const session = ^uintptr(2) // KEY_SPEC_SESSION_KEYRING, -3

var user, key = []byte("user\x00"), []byte("syscaller\x00")

// withKey becomes a command whose session keyring holds a key. Keyrings belong
// to threads until exec.
func withKey(command []string) error {
	runtime.LockOSThread()
	if _, _, errno := syscall.RawSyscall(syscall.SYS_KEYCTL, joinSession, uintptr(unsafe.Pointer(&key[0])), 0); errno != 0 {
		return errno
	}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_ADD_KEY, uintptr(unsafe.Pointer(&user[0])), uintptr(unsafe.Pointer(&key[0])),
		uintptr(unsafe.Pointer(&key[0])), uintptr(len(key)), session, 0)
	if errno != 0 {
		return errno
	}
	return syscall.Exec(command[0], command, os.Environ())
}

func findKey([]string) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_KEYCTL, search, session, uintptr(unsafe.Pointer(&user[0])), uintptr(unsafe.Pointer(&key[0])), 0, 0)
	fmt.Println("search", int(errno))
	_, _, errno = syscall.RawSyscall(syscall.SYS_KEYCTL, clearRing, session, 0)
	fmt.Println("clear", int(errno))
	return nil
}
