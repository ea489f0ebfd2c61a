// Package broker keeps provider keys outside the boxes. A box holds a token
// that works on its own listener only; the broker puts the real key into each
// request and sends it to the one upstream that the token's grant names.
//
// Zone: worker.
//
// Given: provider keys and base URLs by whoever asked for the box (trusted to
// choose upstreams, not trusted to spell them); HTTP/1.1 requests by the code
// in a box (hostile); responses by the upstream (it knows its own key, and must
// not be able to tell the box).
//
// Authority: the real keys, in memory and sealed in the store; connections to
// the upstreams of living grants. The listeners are the boxes' own.
//
// Refuses: a token on another box's listener, after its box ended or after 24
// hours; a grant that the token lacks; methods and paths outside the provider's
// table; every way to name another upstream; upgrades, with the one answer that
// makes engines fall back to POST. It has no way through without a grant.
//
// # Decisions
//
// The box is known by the listener that accepted, before a byte is read; the
// token in the path only says which of that box's turns is calling. A copied
// token is therefore worth nothing elsewhere, and showing it there ends it.
//
// net/http parses what the box sends. A request with both Content-Length and
// Transfer-Encoding is read as chunked, and the framing towards the upstream is
// always made anew, so the two sides cannot disagree about where it ends.
//
// An upstream's informational responses (1xx) and trailers are not passed: both
// would be headers that no table has looked at, and no provider needs them.
//
// A response's headers are searched for the key always; its body only when the
// upstream is not the vendor's own and did not compress it, because the
// client's Accept-Encoding goes out as it is. A key in a compressed echo would
// reach the box.
//
// The store writes behind the caller's back, see Store.
package broker
