package posture

// How late the kernel may wake a thread whose time has come, in nanoseconds
// (prctl(2), PR_SET_TIMERSLACK). A thread has it from the one that made it, and
// keeps it over an exec.
const (
	// OurTimerSlack is the supervisor's and the worker's. Each time that a Go
	// process has something to do again, the runtime's monitor thread asks to be
	// woken every 20 µs for a while: a sixth of the CPU of a tunnel through the
	// egress gate. It is to look less often than it asks for: every 10 ms, as it
	// does by itself when it has found nothing for a while. Nothing of ours is in
	// such a hurry. The thread runs before the first line of Go does, so who
	// starts us has to set it.
	OurTimerSlack = 10_000_000
	// PlainTimerSlack is what every other process begins with: the kernel's own,
	// which a command gets back. boxentry has it for a box.
	PlainTimerSlack = 50_000
)
