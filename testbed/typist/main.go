// Typist tries to type on its own terminal, as a program that wants its
// caller's shell to read a command would.
package main

import (
	"fmt"
	"syscall"
	"unsafe"
)

const (
	tiocsti   = 0x5412
	tioclinux = 0x541c
)

func main() {
	c := byte('x')
	for _, request := range []uint64{tiocsti, tiocsti | 1<<32, tiocsti | 1<<63, tioclinux, tioclinux | 1<<32} {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, 0, uintptr(request), uintptr(unsafe.Pointer(&c)))
		if errno != syscall.EPERM {
			fmt.Printf("typed: request %#x gave %v\n", request, errno)
		}
	}
	fmt.Println("tried")
}
