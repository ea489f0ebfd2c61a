// Package gate holds what every gate of a box has in common: the dialer that
// decides where a box may connect to, the refusal that people can read, the
// tunnel, and the accept loop.
//
// Zone: worker.
//
// Given: hosts and bytes from untrusted code in a box, and DNS answers from
// whoever owns a name.
//
// Authority: it opens connections from this machine's network. It holds no
// secret.
//
// Refuses: every address that addrpolicy does not call public, every address
// of this machine (the kernel's routing table is asked for each connection),
// refused ports, and hosts that an allow list does not name. The address that
// was judged is the one that is dialled; there is no second lookup.
package gate
