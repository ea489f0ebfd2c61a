// Package provider stands in for the model providers in tests: it answers real
// engines on loopback well enough that a whole turn, with a shell command in
// it, runs without any of the real services.
//
// Zone: none; tests and testbed/standin only, linked into no program of ours.
//
// Given: the key that it is to find, the shell command that the engine is to
// run and the words of the last reply, by the test; requests, by an engine or
// by the broker under test.
//
// Authority: none. It dials nobody and runs nothing; what it logs holds the
// test's own key and is for the test's own eyes.
//
// Refuses: a request that does not carry the key exactly once, in the header
// that the provider itself reads and in no other place, with 401 in that
// provider's shape. So a broker that leaves the client's token beside the key,
// or puts the key where another provider wants it, fails its test.
package provider
