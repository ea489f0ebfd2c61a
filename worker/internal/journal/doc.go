// Package journal writes the worker's log: to the system's journal with fields
// of its own, or one line each on stderr.
//
// Zone: worker.
//
// Given: log records of our own code. Their values may quote what a box said,
// so values are data: they can end up in no field but their own.
//
// Authority: it writes to the journal's socket and to stderr.
//
// Refuses: a field name that is not [A-Z][A-Z0-9_]{0,63}, that the journal
// keeps for itself, or that is there already; anything longer than 4 KiB; and,
// as a second line behind secret.Text, every broker token. It never makes its
// caller wait: when the log is slower than the worker, lines are dropped and
// their number is logged.
package journal
