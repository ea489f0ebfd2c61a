// Package acl reads and writes POSIX access control lists, as Linux keeps them
// in extended attributes.
//
// Zone: worker.
//
// Given: lists of files that a bot may have made.
//
// Authority: that of its caller, on open files.
//
// Refuses: every list that is not in the kernel's one form.
package acl
