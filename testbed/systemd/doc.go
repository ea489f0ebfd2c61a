// Package systemd boots a real systemd over a copy of this machine's own root
// file system, in a container that it throws away, and tries what `make install`
// puts on a host: the unit, the account, the catalogue, the watchdog, the stop.
//
// Zone: none; tests only.
//
// Given: root, systemd and systemd-nspawn.
//
// Authority: a mount namespace and a container of its own, without a network.
//
// Refuses: to touch this machine's own systemd, cgroups or files.
package systemd
