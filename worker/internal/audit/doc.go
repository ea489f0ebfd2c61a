// Package audit keeps one line for each request that the broker took, in a
// file that shows when a line was changed, taken out or put in.
//
// Zone: worker.
//
// Given: what the worker's own code says of a request: names from tables,
// numbers and the names that an asker gave its box. No header, no path, no
// query and no value of any kind.
//
// Authority: the files audit.log and audit.log.1 to audit.log.8 in the
// worker's state folder.
//
// Refuses: a folder or file that others can read or write, or that is a link.
// It never makes its caller wait; a disk that does not take lines costs lines,
// and the next line says how many.
//
// # Decisions
//
// Each line holds the SHA-256 of the line before, across files. Whoever can
// write the files can also make the chain anew from any place on; so the
// report carries the newest line's number and sum, and a report that left the
// machine tells a chain that was made anew.
//
// A worker that died in the middle of a write leaves the beginning of a line.
// It was never a line; the next worker cuts it off and says so in its first.
package audit
