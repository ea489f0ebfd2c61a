// Package internet is what the tools in a box find when they are let out: web
// pages, git repositories, package registries, an ssh server and a name
// server, all under example.com and of one test's own making.
//
// Zone: tests; linked into no program of ours.
//
// Given: listeners, which the test opens in a network namespace of its own.
//
// Authority: the test's own; it starts git's and dropbear's server programs
// for the connections that it accepts.
//
// Refuses: nothing. It counts what reaches it, for the tests that nothing may.
package internet
