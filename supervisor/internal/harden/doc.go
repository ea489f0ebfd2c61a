// Package harden has the boot steps that change the machine: who sees whose
// processes, who reaches the platform's own sockets, whose our folders are, and
// which part of the cgroup tree the worker rules.
//
// Zone: supervisor, as root, before the drop.
//
// Given: paths from root's own settings; what stands there may have been put
// there by anybody, so it is opened without following links and judged through
// the held descriptor. By the kernel, the cgroup that we are in.
//
// Authority: CAP_SYS_ADMIN for /proc, ownership for the rest. It moves no
// process but this one, and mounts nothing.
//
// Refuses: to call a step done without reading back what it did, from the
// kernel and from a child that runs as the account.
package harden
