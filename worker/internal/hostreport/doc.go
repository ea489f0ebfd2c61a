// Package hostreport serves the signed report over vsock to the host whose
// virtual machine this is.
//
// Zone: worker.
//
// Given: connections, each with the context ID (CID) that the kernel names as
// its origin. A CID tells from where somebody comes and not who it is: every
// process of the host is 2. So what is served is for anybody there to read, and
// its signature is what a reader relies on.
//
// Authority: it listens on one vsock port from 1024 on, which takes no
// capability.
//
// Refuses: every peer but the host, before a byte of it is read: this machine's
// own processes (CID 1, also when they name the machine by its number), sibling
// machines, and machines below this one. Network namespaces do not bound vsock,
// so it is the system-call filter that keeps boxes from asking at all. Refused
// peers are logged, in one line a second at most. Of the host it bounds the
// connections at a time, the request's length, and the time of both ways.
package hostreport
