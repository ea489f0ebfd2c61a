package main

import (
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/openmausbot/botbox/boxprobe/internal/landlock"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// run returns only when there is no engine to become.
func run(args []string) int {
	if len(args) == 1 && args[0] == "trial" {
		return 0 // a trial box, to see whether this machine can build one
	}
	if len(args) == 2 && args[0] == "trial" {
		return trial(args[1])
	}
	if len(args) == 1 && args[0] == "hold" {
		io.Copy(io.Discard, os.Stdin) // a user namespace that is given its maps meanwhile
		return 0
	}
	if len(args) > 0 && args[0] == "connect" {
		return connect(args[1:], gatePort, os.Stdin, os.Stdout)
	}
	o, err := parseOrders(args)
	if err != nil {
		return refused(err)
	}
	runtime.LockOSThread() // Landlock and exec must be of one thread
	version := landlock.Version()
	writable, err := o.donate(version)
	if err != nil {
		return refused(err)
	}
	path, err := find(o.command[0], os.Getenv("PATH"))
	if err != nil {
		return missing(o.command[0], err)
	}
	if o.tty {
		// bubblewrap's outer process ignores these two while the engine owns
		// the terminal; the engine must not. exec resets what is caught.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGQUIT)
	}
	if !o.score {
		raiseOOMScore()
	}
	if len(writable) > 0 { // none: the self-check has taken this wall away
		err = landlock.Confine(version, writable)
	}
	if err == nil {
		err = o.limit()
	}
	if err != nil {
		return refused(err)
	}
	return missing(o.command[0], syscall.Exec(path, o.command, os.Environ()))
}

// trial tells whether a system call can be made, in a way that does nothing: the
// kernel finds no name at the address 0.
func trial(call string) (code int) {
	if call != "pivot_root" {
		return 1
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_PIVOT_ROOT, 0, 0, 0); errno != syscall.EFAULT {
		return 1
	}
	return 0
}
