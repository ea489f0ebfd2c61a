// Package layers is the table of what each layer of a box stops and what it
// does not: SECURITY.md's table, the matrix of botbox check and the signed
// report are made from it.
//
// Zone: none; values only.
//
// Given: nothing.
//
// Authority: none.
//
// Refuses: a claim that nothing shows. Every row names the checks, boot steps
// or tests that prove what it stops, and every gap names the test that shows
// that it is there: close the gap, and that test fails until the row says so.
// A gap without one is labelled unproved, and a test counts those.
package layers
