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
//
// # Whose child the command's box is
//
// bubblewrap's --die-with-parent ends a box with the thread that started it,
// so a box of the worker's making dies with its worker. The command's box is
// therefore a leased one, as a chat server's boxes are: we start `botbox run
// --control` on the main thread, as the account, closed to others as the worker
// is. It reads what to run from an inherited pipe (descriptor 3), asks the
// worker over lease.sock and becomes bubblewrap: the same process, our child.
// It is started beside the first worker, and looks meanwhile whether a box can
// stand here at all, for later nobody could give bubblewrap's failure a name.
// So the box outlives workers, its stdio and its terminal are ours, and our own
// wait gives its exit status. The container's environment, keys among it, goes
// through the two inherited pipes alone, to the worker and to this one; it
// stands in no file and in no environment of ours, and bubblewrap's own is
// empty. A leased box's signals would be bubblewrap's, which dies of them: TERM
// goes to the engine through the worker's drain, HUP and its like by
// box.signal, which names the process that we wait for. Without a worker TERM
// ends the box.
//
// A plain command starts the same way, by `botbox plain --control`: what looks
// a program up in PATH need not be root.
package control
