// Package signin delivers the redirect of a sign-in to the engine that waits
// for it: an HTTP server on the loopback of a box, which nobody outside can
// reach. The server that asked for the box has the redirect from the person who
// signed in, on another computer perhaps.
//
// Zone: worker.
//
// Given: redirects by a caller of the worker's API, who is trusted to choose
// the box and its port, not to spell them; answers by whoever listens there,
// who is untrusted.
//
// Authority: it connects to the box's own loopback, over sockets that were born
// in the box, and to nothing else.
//
// Refuses: any host but 127.0.0.1, localhost and [::1], any method but GET,
// ports below 1024 and the gates' own, more than 8 KiB, a second redirect while
// one is under way; and to follow whatever the box answers.
//
// # Decisions
//
// The body of POST /v1/boxes/{id}/relay is the redirect as it was pasted, or
// its two parts, and never both:
//
//	{"url":"http://localhost:51121/cb?state=s&code=c"}
//	{"port":51121,"request":{"method":"GET","target":"/cb?state=s&code=c"}}
//
// The answer is what the engine answered, of its header fields two only:
//
//	{"status":200,"headers":{"content-type":"text/html"},"body":"…","truncated":false}
//
// The target goes into the box byte by byte as it was given. localhost, and a
// port alone, is 127.0.0.1 first and ::1 if nobody listens there: runtimes
// differ about which of the two they listen on. A Location in the answer is told
// and not followed, for the page that it names is the person's to see.
//
// The box chooses nothing: not the port, not the time, and no byte of it says
// where the worker connects. Beside a listener's connections it sees of the way
// in only that its kernel counts one or two sockets more
// (/proc/net/sockstat), which no process in the box holds.
package signin
