// Package landlock is a box's second write wall: even where a mount can be
// written, a file can be only if it lies in a folder that the worker named.
//
// Zone: inside a box.
//
// Given: the folders that may be written, by boxentry, which has them of the
// worker; and what this kernel's Landlock can do, by the kernel.
//
// Authority: none. It only takes rights away, of the calling thread and of
// what that thread becomes.
//
// Refuses: to go on with a wall that could not be built on a kernel that has
// it. Reading and running are not its business: what a box sees is decided by
// its mounts alone.
package landlock
