// Package vault is the worker's side of the supervisor's vault (shared/wire):
// what a box needs to outlive this worker goes there, and what the boxes of
// the worker before left there comes back.
//
// Zone: worker.
//
// Given: files that a worker before this one deposited, by the supervisor.
//
// Authority: it hands duplicates of a box's files to root, which reads none.
//
// Refuses: an answer out of place, and to wait for a supervisor for long.
package vault
