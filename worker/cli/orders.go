package cli

import (
	"syscall"
	"time"
)

// orders carries out what the supervisor asks for.
type orders struct{ w *worker }

// BoxSignal passes a signal of the container's on to its own command's engine.
func (o orders) BoxSignal(pid int, sig syscall.Signal) error {
	t, err := o.w.runner.HeldBy(pid)
	if err != nil {
		return err
	}
	return t.Signal(sig)
}

// Drain ends all boxes.
func (o orders) Drain(within time.Duration) { o.w.runner.Drain(within) }
