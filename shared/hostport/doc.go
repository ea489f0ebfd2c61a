// Package hostport is the one strict grammar for "which host and port?".
//
// Zone: none; values and pure functions, linked into the worker.
//
// Given: the authority of a CONNECT or of an absolute URL, or a SOCKS name,
// written by untrusted code in a box; and the patterns of an allow list,
// written by whoever configures the box.
//
// Authority: none. A Host says where to, never whether.
//
// Refuses: every spelling that two parsers could read differently. User
// names, zones, brackets round anything but IPv6, decimal, hexadecimal, octal
// and short IPv4, non-ASCII (no IDNA mapping: it has turned full-width digits
// into 127.0.0.1), ports with signs or leading zeros.
package hostport
