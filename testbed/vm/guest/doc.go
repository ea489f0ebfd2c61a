// Guest is the inside of the test's virtual machine: its /init, which mounts
// what a machine needs and becomes botbox-supervisor or starts it, and beside
// that the checks, which print one line each:
//
//	CHK NAME ok EVIDENCE
//	CHK NAME FAIL WHY
//	DONE NUMBER
//
// Zone: tests; linked into no program of ours, and of no use outside that
// machine: it refuses to do anything where it is not the first process.
//
// Given: the kernel's command line, which names the course to run.
//
// Authority: root of a machine that is thrown away.
//
// Refuses: nothing; it has the machine for itself.
package main
