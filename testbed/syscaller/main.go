// Syscaller makes system calls that a box refuses, and some that it must not,
// and prints what the kernel answers, a line each: "name errno".
package main

import (
	"fmt"
	"os"
	"syscall"
)

func main() {
	mode := map[string]func([]string) error{"calls": calls, "unix": local, "with-key": withKey, "find-key": findKey, "foreign": foreignCall}
	if len(os.Args) < 2 || mode[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "syscaller: calls, unix, with-key COMMAND, find-key or foreign NAME")
		os.Exit(100)
	}
	if err := mode[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

const bad = ^uintptr(0)

// table has arguments that do nothing where a call is let through: a socket of
// type 15 does not exist. The numbers are those of every 64-bit Linux.
var table = []struct {
	name string
	nr   uintptr
	args [2]uintptr
}{
	{"clone3", 435, [2]uintptr{}},
	{"io_uring_setup", 425, [2]uintptr{1}},
	{"io_uring_enter", 426, [2]uintptr{bad}},
	{"io_uring_register", 427, [2]uintptr{bad}},
	{"TIOCSTI", syscall.SYS_IOCTL, [2]uintptr{bad, 0x5412}},
	{"TIOCSTI+1<<32", syscall.SYS_IOCTL, [2]uintptr{bad, 1<<32 | 0x5412}},
	{"TIOCSTI+1<<63", syscall.SYS_IOCTL, [2]uintptr{bad, 1<<63 | 0x5412}},
	{"TIOCLINUX", syscall.SYS_IOCTL, [2]uintptr{bad, 0x541c}},
	{"TIOCLINUX+1<<32", syscall.SYS_IOCTL, [2]uintptr{bad, 1<<32 | 0x541c}},
	{"TCGETS", syscall.SYS_IOCTL, [2]uintptr{bad, syscall.TCGETS}},
	{"socket packet", syscall.SYS_SOCKET, [2]uintptr{17, 15}},
	{"socket alg", syscall.SYS_SOCKET, [2]uintptr{38, 15}},
	{"socket vsock", syscall.SYS_SOCKET, [2]uintptr{40, 15}},
	{"socket xdp", syscall.SYS_SOCKET, [2]uintptr{44, 15}},
	{"socket unix", syscall.SYS_SOCKET, [2]uintptr{syscall.AF_UNIX, 15}},
	{"unshare user", syscall.SYS_UNSHARE, [2]uintptr{syscall.CLONE_NEWUSER}},
}

func calls([]string) error {
	for _, c := range table {
		_, _, errno := syscall.RawSyscall(c.nr, c.args[0], c.args[1], 0)
		fmt.Println(c.name, int(errno))
	}
	return nil
}

// foreignCall makes one call that is not of this program's own mode. The
// answer of a kernel without that mode is printed like any other.
func foreignCall(names []string) error {
	call := foreign[names[0]]
	if call == nil {
		return fmt.Errorf("no call %q on this processor", names[0])
	}
	fmt.Println(names[0], call())
	return nil
}
