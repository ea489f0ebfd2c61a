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
// hours, which also end its open streams; a grant that the token lacks, or that
// is over its limits; methods and paths outside the provider's table; every way
// to name another upstream; upgrades to anything but a WebSocket that the table
// has. It has no way through without a grant.
//
// # Decisions
//
// The box is known by the listener that accepted, before a byte is read; the
// token in the path only says which of that box's turns is calling. A copied
// token is therefore worth nothing elsewhere, and showing it there ends it. A
// token on the listener of a box of which nothing is known means that the table
// was lost: that is said, and nothing goes out.
//
// A server on this machine's own loopback that whoever asked for the box
// declared by name (net.loopback_upstreams) is a grant too: one fixed upstream,
// with no credential at all, at /b/<token>/<name>/… in place of the URL that was
// declared. The box has the address in BOTBOX_UPSTREAM_<NAME>, the asker in the
// answer's loopback_addresses. What is above the declared path stays closed, so
// a URL that ends with /v1 keeps a box from a server's other interfaces.
//
// net/http parses what the box sends, and serves it but for the plain POSTs that
// are nearly all of it, see lane: they need no second goroutine each. What the
// lane does not know at first sight is net/http's. A request with both
// Content-Length and Transfer-Encoding is read as chunked, and the framing
// towards the upstream is always made anew, so the two sides cannot disagree
// about where it ends.
//
// net/http also speaks to the upstreams: TLS, HTTP/2, bodies that stream. Only a
// request that is whole in memory, to an upstream without TLS, is written and
// its connection kept by code of our own, see upstreams; net/http still reads
// the answer. Through its transport such a request crosses four goroutines.
//
// An upstream's informational responses (1xx) and trailers are not passed: both
// would be headers that no table has looked at, and no provider needs them.
//
// A body has no cap. It streams through and costs no memory, and a cap below
// what a vendor takes ends long conversations for good. A turn that should not
// send without end gets limits.bytes.
//
// A response's headers are searched for the key always. Its body is searched
// when the upstream is not the vendor's own: such an upstream is asked not to
// compress, what it compresses all the same is decoded, and what cannot be
// decoded is refused. The frames of a WebSocket to it are searched, too, and no
// compression is offered for them. From the vendor itself all bytes pass as
// they are.
//
// Rotation exchanges the key under a living grant. Requests that have begun end
// with the old one; the old one is still searched for in answers.
//
// An engine is led here by whatever it obeys above a project's files: settings
// of ours are laid over the driver's, and what is only there to keep it quiet
// gives way to the driver's. A key whose program nothing leads here stays raw,
// and is named: with a token it would call its vendor and fail.
//
// The store writes behind the caller's back, see Store.
//
// # MCP servers
//
// A conversation's URL servers have a token of their own, a lease: the address
// that an engine was started with must stay the same in later turns, or it
// loses its sessions. Its text is made of a seed and the boot key, so the
// worker that takes over makes the same one and nobody stores it. It is bound
// to the conversation's living boxes, each at its own listener, and holds the
// headers only while there is one: what is kept for the next turn is a place,
// not a right. The list of servers (name, address, names of headers) is its
// key; another list, a server that did not start, or a day makes a new one.
//
// A box finds the addresses in BOTBOX_MCP_NAME, so a configuration that names
// the variable never changes; who writes addresses into one asks for them
// before the turn, and gets the same.
//
// A message's bytes are never changed. The broker reads a request's ids and
// methods, because a refusal has to be an answer to that very call: a status
// 401 makes engines sign in behind the broker's back, and some keep what is
// left of it for ever. Redirects of the server's own origin are followed here,
// for a client would follow them away from the broker. The endpoint event of
// 2024-11-05 is the one thing that is rewritten; the address in it is sealed,
// so a box cannot choose a path on the server's origin with it.
//
// A stream that is quiet for half a minute gets a comment between two events:
// clients give a silent body up after five minutes.
package broker
