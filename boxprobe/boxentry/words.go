package main

import (
	"errors"
	"os"
	"syscall"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
)

// refused says why there is no box, with the worker's own reason if it gave one.
func refused(err error) int {
	if no, ok := err.(wire.Refusal); ok {
		return fail(reason.ExitNoBox, no.Text, no.Hint, no.Code)
	}
	return fail(reason.ExitNoBox, "cannot start the box: "+err.Error(), "", string(reason.BoxFailed))
}

// missing says what a shell would say about a command that it cannot run.
func missing(name string, err error) int {
	if errors.Is(err, syscall.ENOENT) {
		return fail(reason.ExitNotFound, name+": command not found in the box", "a box sees /usr, /etc, /opt and what --ro and --rw name", "")
	}
	return fail(reason.ExitNotRunnable, name+": cannot be run in the box: "+err.Error(), "", "")
}

func fail(status int, what, hint, code string) int {
	os.Stderr.WriteString("botbox: " + what + "\n")
	if hint != "" {
		os.Stderr.WriteString("hint: " + hint + "\n")
	}
	if code != "" {
		os.Stderr.WriteString("reason: " + code + "\n")
	}
	return status
}
