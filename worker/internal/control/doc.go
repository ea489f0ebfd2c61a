// Package control is the worker's side of the control channel bbx/1.
//
// Zone: worker.
//
// Given: fds 3 (read), 4 (write) and 6 (read) by the supervisor that started
// us; or fd 3 alone, with its command, where we are to become that.
//
// Authority: none of its own; it hands requests to Actions.
//
// Refuses: frames that are malformed, out of order or unknown, and fds that
// are not the pipes they should be: then this is no worker of a supervisor.
package control
