// Package harness is a box's way to the chat server: a reverse proxy that
// lets /api/internal/ through and nothing else.
//
// Zone: worker.
//
// Given: requests from untrusted code in one box, accepted on a listener that
// only this box can reach.
//
// Authority: it connects to the server's one address. The server must give
// that connection no trust for coming from loopback; the box's bearer token in
// Authorization is its only credential.
//
// Refuses: by the bytes of the request target, before any connection. A gate
// that decodes or cleans a path and one that does not are both bypassed, for
// the server reads the target by rules of its own (a Node server resolves dot
// segments, %2e among them). Here only targets pass that every reader takes
// for the same path, and exactly the bytes that were judged are sent.
package harness
