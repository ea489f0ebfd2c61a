// Package harden has the boot steps that change the machine: who sees whose
// processes, who reaches the platform's own sockets, whose our folders are.
//
// Zone: supervisor, as root, before the drop.
//
// Given: paths from root's own settings. What stands there may have been put
// there by anybody: it is opened without following links and judged through
// the held descriptor.
//
// Authority: CAP_SYS_ADMIN for /proc, ownership for the rest.
//
// Refuses: to call a step done without reading back what it did, from the
// kernel and from a child that runs as the account.
package harden
