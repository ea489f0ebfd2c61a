package cli

import (
	"os"
	"syscall"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/lease"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// startedFromOutside tells whether whoever started this process is outside its
// PID namespace, as docker exec, kubectl exec and their like are. They end some
// milliseconds later, while whoever wants the box goes on, and a box that had
// such a parent died with it (137).
func startedFromOutside() bool { return os.Getppid() == 0 }

// stay keeps this process as the parent of a leased box, in place of becoming
// it. A box ends with the thread that started it (bubblewrap's
// --die-with-parent), and a daemon whose runtime ends its idle threads would
// lose its browser after ten quiet seconds (agent-browser's, with tokio). This
// process keeps the environment that a box is started without.
func (c *call) stay(l *lease.Lease, s spec.Spec) (int, error) {
	if err := closeToOthers(); err != nil {
		return 0, err
	}
	signals := c.catch(s.TTY)
	child, err := box.NewSpawner().Start(l.Kit(inherited(s)), [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, !s.TTY)
	if err != nil {
		return 0, err
	}
	deadly := make(chan int, 1)
	go func() {
		for sig := range signals {
			if n := sig.(syscall.Signal); n != syscall.SIGWINCH { // as it ends a box that this process became
				deadly <- reason.ExitSignalOffset + int(n)
				child.Kill()
				return
			}
		}
	}()
	code := child.Wait()
	select {
	case code = <-deadly:
	default:
	}
	return code, nil
}
