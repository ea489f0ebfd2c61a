// Package turn is one boxed turn from its spec to its end: the straight line
// that everything else hangs on.
//
//	Prepare: spec → plan → environment → grants → kit
//	Attend:  donation → gates → go … engine runs … → revoke → close → count
//
// Zone: worker.
//
// Given: decoded specs, which are not trusted, from `botbox run`, lease.sock,
// the supervisor and the self-check; the machine's settings by the operator.
//
// Authority: the broker's keys pass through it, still wrapped, and it kills
// the boxes that it attends.
//
// Refuses: more boxes than Limit, a second box of the same name, and any box
// whose processes it cannot hold on to.
package turn
