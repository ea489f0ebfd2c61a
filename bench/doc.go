// Bench measures what a box costs, beside the bare mechanism and beside the
// usual way of doing it, in one run.
//
// Zone: none; linked into no program of ours.
//
// Given: the programs in bin, on a machine that is shared and noisy. So the
// contenders take turns, and what counts are minima and ratios of medians.
//
// `go run ./bench broker [FOLDER…]` prints the broker's rows alone, beside the
// programs of other folders: what a change was worth, in one run.
//
// Authority: the caller's; as root the boxes are the user maus'.
//
// Refuses: to print a figure of a run that did not work.
package main
