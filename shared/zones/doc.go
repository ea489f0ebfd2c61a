// Package zones is the table of trust zones, and the rules by which the folders
// of this repository stay apart. The package's tests enforce every row.
//
// Zone: none; constant tables, fit to be linked into any program.
//
// Given: nothing; the tables are written by hand and changed in review.
//
// Authority: none.
//
// Refuses: nothing itself. Its tests refuse a package, an import, a linked
// dependency or a file that the tables do not allow, a rule whose subject no
// longer exists, and a program that outgrows its budget.
package zones
