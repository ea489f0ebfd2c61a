package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/openmausbot/botbox/shared/reason"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// run returns only when there is no engine to become.
func run(args []string) int {
	if len(args) == 1 && args[0] == "trial" {
		return 0 // a trial box, to see whether this machine can build one
	}
	o, err := parseOrders(args)
	if err != nil {
		return fail(reason.ExitNoBox, "cannot start the box: "+err.Error(), string(reason.BoxFailed))
	}
	if err := donate(o.socket, o.listen); err != nil {
		return fail(reason.ExitNoBox, "cannot start the box: "+err.Error(), string(reason.BoxFailed))
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
	if err := o.limit(); err != nil {
		return fail(reason.ExitNoBox, "cannot start the box: "+err.Error(), string(reason.BoxFailed))
	}
	return missing(o.command[0], syscall.Exec(path, o.command, os.Environ()))
}

// missing says what a shell would say about a command that it cannot run.
func missing(name string, err error) int {
	if errors.Is(err, syscall.ENOENT) {
		return fail(reason.ExitNotFound, name+": command not found in the box", "")
	}
	return fail(reason.ExitNotRunnable, name+": cannot be run in the box: "+err.Error(), "")
}

func fail(status int, what, code string) int {
	os.Stderr.WriteString("botbox: " + what + "\n")
	if status == reason.ExitNotFound {
		os.Stderr.WriteString("hint: a box sees /usr, /etc, /opt and what --ro and --rw name\n")
	}
	if code != "" {
		os.Stderr.WriteString("reason: " + code + "\n")
	}
	return status
}
