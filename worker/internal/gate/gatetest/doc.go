// Package gatetest gives the gates' tests a world of their own: a network
// namespace, a neighbour with public addresses in it, a resolver, an origin
// that a test scripts, and the client's side.
//
// Zone: none; only tests import it.
//
// Given: nothing but what the tests write.
//
// Authority: it starts the test's own binary again under unshare, and changes
// the network of namespaces that it made.
//
// Refuses: to send anything before it has seen that it is not in the network
// namespace that it was started from.
package gatetest
