// Package usage tells from outside whether a box does anything, out of what
// the kernel counts anyway: nothing of ours stands in the way of a byte.
//
// Zone: worker.
//
// Given: pids of boxes that the worker attends.
//
// Authority: none beyond reading /proc of our own user's processes.
//
// Refuses: to call a box idle that it cannot look at.
//
// A box that hides its work from these counts is only ended the sooner.
package usage
