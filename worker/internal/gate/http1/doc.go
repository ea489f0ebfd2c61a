// Package http1 reads HTTP/1 heads and bodies strictly, and relays one request
// and its answer.
//
// Zone: worker.
//
// Given: bytes from untrusted code in a box, and bytes from upstreams.
//
// Authority: none of its own; it copies between two connections that a gate
// hands it.
//
// Refuses: whatever two parsers could read differently. Go's own reader takes
// bare line feeds, folded fields, HTTP/1.2, two Content-Lengths of one value,
// 128 KiB of fields and a CONNECT with a path, and a client that is built on
// it rewrites URLs; a gate that decides on one reading while the upstream acts
// on another decides nothing.
package http1
