// Package slips breaks the product on purpose, one slip of somebody's hand at a
// time, and holds its self-check to noticing.
//
// Zone: tests; linked into no program of ours.
//
// Given: the checkout that the tests run in, and a compiler, which reads edited
// files in place of the real ones.
//
// Authority: the test's own; the broken programs run as an ordinary user.
//
// Refuses: a slip that no longer fits the sources, and one that nothing
// catches.
package slips
