// Package report is what the worker says of itself and of this machine.
//
// Zone: worker.
//
// Given: findings of our own code; no text of a box.
//
// Authority: none; values in, JSON out.
//
// Refuses: to call a check passed that did not run, and to hold a secret: it
// has no field for a value, a path of a request or a token.
package report
