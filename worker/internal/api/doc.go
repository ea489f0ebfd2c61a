// Package api is the worker's HTTP interface on a unix socket.
//
// Zone: worker.
//
// Given: requests by processes of the worker's own user, or of root; the
// kernel says whose they are. ReportOnly is the one route that others may be
// given.
//
// Authority: it can end boxes and signal engines.
//
// Refuses: other users, unknown paths and methods, and bodies above 64 KiB.
// Errors are {"code","message","hint"}.
package api
