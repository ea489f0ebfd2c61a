package main

import (
	"fmt"
	"math"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/posture"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/control"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
)

// The main goroutine keeps the main thread: capabilities belong to threads,
// the exec must come from the one that dropped them, and children die with the
// thread that forked them.
func init() { runtime.LockOSThread() }

func main() {
	signals := control.Catch() // before any I/O: as PID 1 an uncaught TERM is exit 2
	// Close-on-exec and not closed: one may be the Go runtime's own by now.
	closed := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	unix.Umask(0o077)
	unix.Prctl(unix.PR_SET_TIMERSLACK, posture.OurTimerSlack, 0, 0, 0) // for after the exec, and for the worker
	b := &boot{args: os.Args[1:], env: os.Environ()}
	os.Clearenv()
	b.log = control.NewLog(b.env)
	if closed != nil {
		os.Exit(b.end(0, reason.New(reason.System, "close inherited descriptors, which needs Linux 5.11: %w", closed)))
	}
	os.Exit(b.end(b.supervise(signals)))
}

func (b *boot) end(status int, err error) int {
	b.tidy()
	if err != nil {
		b.log.Fail(err)
		return reason.Exit(err)
	}
	return status
}

// supervise is the whole life. It is walked twice by one process: up to the
// exec with every capability, and from there on with three.
func (b *boot) supervise(signals *control.Signals) (int, error) {
	resumed := privdrop.Resumed(os.Args)
	if resumed {
		if err := b.resume(); err != nil {
			return 0, err
		}
	}
	if len(b.args) == 1 && b.args[0] == "--version" {
		fmt.Println("botbox-supervisor", wire.Build)
		return 0, nil
	}
	mode, command, err := b.prepare()
	if err != nil {
		return 0, err
	}
	if !resumed {
		if err := b.run(beforeExec); err != nil {
			return 0, err
		}
		if sig := signals.Stopped(); sig != 0 {
			return reason.ExitSignalOffset + int(sig), nil // nothing runs yet
		}
		return 0, b.reexec()
	}
	if err := b.run(afterExec); err != nil {
		return 0, err
	}
	return control.Run(b.config(mode, command), signals, b.log)
}
