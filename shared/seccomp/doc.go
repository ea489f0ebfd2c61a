// Package seccomp holds the system-call filter of a box: the table of calls
// that it refuses, and the assembler that makes a BPF program of the table.
//
// Zone: none; values and pure functions, linked into the worker and the probe.
//
// Given: a kind of box and a CPU, by our own code.
//
// Authority: none; bubblewrap installs the program, which it reads from a file
// descriptor.
//
// Refuses: everything that the table names, every system call of another CPU
// mode, and every call that is younger than the table. Arguments are compared
// by their low 32 bits only: the kernel looks at no more of an int, and a
// filter that compared 64 bits was walked around by setting a high one
// (CVE-2019-10063, CVE-2019-7303).
//
// The program is linear on purpose. The kernel (5.11 and newer) keeps a bitmap
// of calls that are always allowed, so the length costs them nothing, and a
// list is easier to review than a search tree.
package seccomp
