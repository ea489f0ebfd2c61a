// Package cgroup bounds the memory, the processors and the processes of boxes,
// where this process was given a part of the cgroup v2 tree to rule.
//
//	the part that we were given   botbox.service    no process in it
//	├─ where we are               botbox-worker     the worker, its supervisor
//	└─ one for each box           box-NAME          PID 1 of the box and all below
//
// Zone: worker.
//
// Given: by the supervisor, a cgroup that this user may make others in, with us
// in the leaf already; or by the machine's init (Delegate=yes), with us in it; by the kernel, which one we are in; limits, by a spec.
//
// Authority: it moves this process, its supervisor and the processes of its
// own boxes between cgroups, and kills a box whole.
//
// Refuses: a tree that other processes are in, one that cannot be written, and
// a limit that the kernel did not take. It never mounts anything.
package cgroup
