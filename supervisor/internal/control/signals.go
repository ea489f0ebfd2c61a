package control

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Signals are caught from the first line of main to the exit.
type Signals struct {
	other chan os.Signal
	child chan os.Signal // apart, so that an orphan storm cannot push TERM out
}

// caught are the signals that must neither end nor stop us. As PID 1 an
// uncaught TERM would be exit 2, for the Go runtime cannot die of it there.
// PIPE: a closed stderr must not end us. TSTP, TTIN: a stop that nobody undoes.
func caught() []os.Signal {
	return []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}
}

// Catch starts catching. Nothing can catch earlier: between the exec and this
// call, about 0.7 ms measured, a TERM ends the Go runtime (143, as PID 1 exit
// 2), and it does so even when the signal was blocked across the exec, for the
// runtime unblocks TERM, INT, HUP and QUIT before any code of ours runs.
func Catch() *Signals {
	s := &Signals{make(chan os.Signal, 64), make(chan os.Signal, 1)}
	signal.Notify(s.other, caught()...)
	signal.Notify(s.child, syscall.SIGCHLD)
	return s
}

// last is a signal of our own making. The Go runtime hands signals over from a
// goroutine, a batch at a time in the order of their numbers; this number is
// above those of the stops, so once it is here all that came before it are.
const last = syscall.SIGWINCH

// lastWithin bounds the wait for it; a machine so slow may lose a stop.
const lastWithin = 2 * time.Second

// Stopped tells which stop signal has come so far, 0 for none. It is asked
// before the re-exec, which loses what the runtime has not handed over.
func (s *Signals) Stopped() (stop syscall.Signal) {
	signal.Notify(s.other, last)
	late := time.After(lastWithin)
	if err := syscall.Kill(os.Getpid(), last); err != nil {
		return 0
	}
	for {
		select {
		case sig := <-s.other:
			switch sig {
			case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT:
				stop = sig.(syscall.Signal)
			case last:
				return stop
			}
		case <-late:
			return stop
		}
	}
}
