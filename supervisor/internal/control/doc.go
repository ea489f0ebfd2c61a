// Package control keeps one worker alive, speaks the control channel with it,
// and ends everything inside the drain budget.
//
// Zone: supervisor, after the drop.
//
// Given: frames that the worker wrote, which are judged by the closed table of
// shared/wire and by whether they were asked for; and the signals of whoever
// runs the container.
//
// Authority: CAP_SETUID and CAP_SETGID to start the worker and the command as
// the account, CAP_KILL to signal them.
//
// Refuses: every frame that is malformed or not expected now. There is no
// getting back in step with such a worker: it is killed and replaced.
//
//	starting ──ready──► ready ──stop, or the command's end──► draining ──► stopped
//	   ▲   │              │
//	   │   └──► replacing ◄┘  (bad frame, silence, closed channel)
//	   │            │ its exit
//	   └─backoff ◄──┴──────► failed (five starts in a minute that led to no work, or the box's worker)
//
// machine.go decides and touches nothing; loop.go does what it decides.
package control
