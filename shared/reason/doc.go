// Package reason holds the one table of reason codes, and the error type that
// carries a code to the person who has to act on it.
//
// Zone: none; values and pure functions, linked into every program.
//
// Given: a code from the table and words from our own code. Text that an
// untrusted side wrote is never a format string and is quoted by the caller.
//
// Authority: none.
//
// Refuses: a code that is not in the table (New panics, so a test finds it).
package reason
