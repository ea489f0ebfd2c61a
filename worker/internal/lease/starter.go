package lease

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// starterEnds is how long a container runtime's exec is waited for. It ends
// some milliseconds after its child runs; where it has ended before we looked,
// nothing tells of that, and the wait is in vain.
const starterEnds = 200 * time.Millisecond

// Starter is whoever started this process from outside its PID namespace.
type Starter struct{ ended chan os.Signal }

// WatchStarter begins to look for the end of a starter that cannot be seen from
// here: docker exec, kubectl exec and their like put a process into a container
// and are gone a moment later. bubblewrap's --die-with-parent takes the end of
// its parent for that of whoever wants the box, so a box that began in that
// moment was killed (137). The starter of anybody else is its own affair.
func WatchStarter() *Starter {
	if os.Getppid() != 0 {
		return nil
	}
	s := &Starter{make(chan os.Signal, 1)}
	signal.Notify(s.ended, syscall.SIGCHLD) // nobody minds it, should it come after the exec
	if unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGCHLD), 0, 0, 0) != nil {
		return nil
	}
	return s
}

// Wait returns when the starter has ended, or stays.
func (s *Starter) Wait() {
	if s == nil {
		return
	}
	select {
	case <-s.ended:
	case <-time.After(starterEnds):
	}
	signal.Stop(s.ended)
}
