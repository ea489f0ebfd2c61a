// Package started starts a program of ours as the supervisor starts the worker,
// so that a benchmark measures what runs in production.
//
// Zone: none; only the benchmarks use it.
//
// Given: a command, by a benchmark.
//
// Authority: the caller's.
//
// Refuses: nothing.
package started

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/posture"
)

// AsWorker starts cmd with the timer slack that the supervisor gives.
func AsWorker(cmd *exec.Cmd) error {
	runtime.LockOSThread() // the slack is this thread's, and what it forks has it
	defer runtime.UnlockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, posture.OurTimerSlack, 0, 0, 0); err != nil {
		return err
	}
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)
	return cmd.Start()
}
