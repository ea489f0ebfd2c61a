// Package lease hands boxes out over a socket: one spec in, one answer with a
// kit's open files out, and the asker itself becomes the box.
//
//	botbox run                                worker
//	spec, inline or as a memfd    ──────────► turn.Prepare
//	becomes bubblewrap            ◄────────── answer + files
//
// Zone: worker, both ends.
//
// Given: one packet by a process of the worker's own user, or of root. The
// kernel says whose it is (SO_PEERCRED); the packet itself is not trusted.
//
// Authority: the server's end holds the runner; the asker's end has none.
//
// Refuses: other users, a packet without a usable spec, an answer of another
// build, and to go on when a single file of the kit is missing.
package lease
