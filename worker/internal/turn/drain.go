package turn

import (
	"syscall"
	"time"
)

// Drain ends every box and takes no new one: engines are asked first, and
// killed with all that is in their boxes when three fifths of the time are
// over. It returns when nothing is left, or when the time is over.
func (r *Runner) Drain(within time.Duration) {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	deadline := time.After(within)
	for _, t := range r.Running() {
		go t.ask()
	}
	if r.allEnded(time.After(within * 3 / 5)) {
		return
	}
	for _, t := range r.Running() {
		go t.Kill()
	}
	r.allEnded(deadline)
}

// ask asks the engine to end, as soon as there is one.
func (t *Turn) ask() {
	select {
	case <-t.ready:
		t.Signal(syscall.SIGTERM)
	case <-t.ended:
	}
}

// allEnded waits for the boxes that are open now.
func (r *Runner) allEnded(until <-chan time.Time) bool {
	for _, t := range r.Running() {
		select {
		case <-t.Ended():
		case <-until:
			return false
		}
	}
	return true
}
