// Package socks is a browser box's SOCKS5 proxy: CONNECT, and nothing else of
// RFC 1928.
//
// Zone: worker.
//
// Given: bytes from untrusted code in one box, accepted on a listener that
// only this box can reach, which is therefore its identity.
//
// Authority: it connects to public hosts through gate.Dialer, the same that
// the egress gate uses. It sees hosts and byte counts, and the traffic of what
// is not encrypted.
//
// Refuses: what gate.Dialer refuses, every name that breaks hostport's grammar,
// BIND and UDP ASSOCIATE (a browser's QUIC and WebRTC would leave by the
// latter), SOCKS4, whose names are optional, and every method of
// authentication: the listener says who is asking, and no password can be stolen.
package socks
