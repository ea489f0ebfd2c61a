// Package vault keeps what boxes outlive their worker with: duplicates of
// their listening sockets, for the next worker.
//
// Zone: supervisor, after the drop.
//
// Given: packets and files from the worker, which may lie about each of them.
//
// Authority: it holds descriptors open. It reads and writes none of them, and
// accepts no connection.
//
// Refuses: every file that the kernel does not call what the worker calls it,
// every packet out of place, and more than it has room for. Nothing here
// waits: a worker that does not read what it asked for is replaced, and a box
// whose first process has ended is dropped without anybody's asking, so that
// no box's network lives on through root.
package vault
