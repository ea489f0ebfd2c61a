// Package reap is the one owner of fork and wait.
//
// Zone: supervisor, after the drop.
//
// Given: the exit statuses of our own children and of every orphan below us.
//
// Authority: CAP_SETUID, CAP_SETGID and CAP_KILL, through its caller.
//
// Refuses: to signal a process that is not ours or has been waited for, so a
// reused process id is never hit, nor 0, 1 or -1.
//
// All calls come from the one locked main thread. PR_SET_PDEATHSIG watches the
// thread that forked, not the process (golang/go#27505), and a wait4(-1) in a
// second goroutine was measured to steal 224 of 300 statuses.
package reap
