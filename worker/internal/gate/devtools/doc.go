// Package devtools serves a boxed browser's --remote-debugging-port outside, on
// the same port of this machine's loopback: a daemon that drives Chrome over it
// finds it where Chrome says that it is.
//
// Zone: worker.
//
// Given: connections by processes of this machine; bytes, and one answer about
// the port's own address, by the browser in the box, which is untrusted.
//
// Authority: it connects to one port of the box's loopback, over sockets that
// were born in the box, and writes one file into the browser's profile.
//
// Refuses: connections of other users of this machine than the worker's own and
// root, for whoever drives a browser has its cookies; more connections than the
// box donated sockets. No other port of the box is reached.
//
// # Decisions
//
// Outside and inside the number is the same, since Chrome tells it: on stderr,
// in DevToolsActivePort, and in the addresses of its pages. So port 0 is chosen
// outside, where others may hold a port, and Chrome gets the number that was
// free. A Chrome that is given a number writes no DevToolsActivePort, which
// daemons that said 0 wait for: we write it in Chrome's place and form, once
// the browser answers. Nothing is read from the profile, for a box can write
// there what it likes.
//
// A connection that comes before Chrome listens is closed at once.
package devtools
