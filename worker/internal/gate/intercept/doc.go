// Package intercept ends the TLS of a box's connections to the few hosts that
// its spec declares, so that the credential broker can put a key into requests
// whose client knows no other address than the vendor's own.
//
// Zone: worker.
//
// Given: the declared hosts, by whoever asked for the box; connections to them,
// by the code in the box (hostile), after the egress gate has read CONNECT.
//
// Authority: one certificate that is good for these hosts, in this box, for a
// day. The authority that signed it had its key for the length of one function:
// no second certificate can ever be made, by us or by anybody. The certificate
// itself, with its key, may be sealed for the worker after this one.
//
// Refuses: every other host, which goes through the egress gate untouched; a
// host name that is no plain name; protocols other than HTTP/1.1.
package intercept
