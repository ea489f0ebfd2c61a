// Package privdrop gives the supervisor's privileges up and proves it.
//
// Zone: supervisor, as root.
//
// Given: nothing but the kernel's own answers, and a memfd that this package
// itself sealed before the exec.
//
// Authority: every capability at first; after Verify the three of Kept.
//
// Refuses: to go on when one bit of one thread differs from what it should
// be, or when one of the ways back is open.
//
// The way: a bounding set can only be emptied with CAP_SETPCAP, and the worker
// must have an empty one, so the supervisor empties its own first. Root's exec
// then gives P' = inheritable ∪ bounding, so the kept three ride through the
// exec in the inheritable set and leave it right after.
package privdrop
