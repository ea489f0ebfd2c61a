// Package posture collects what the kernel shows of a process and compares it,
// whole, with what it should be, so that a new leak fails too and not only the
// leaks that somebody thought of.
//
// Zone: none; reads /proc, changes nothing.
//
// Given: a process id, and the kernel's own text under /proc.
//
// Authority: that of its caller.
//
// Refuses: a status text without one of the fields it compares, for a
// collection with holes proves nothing.
package posture
