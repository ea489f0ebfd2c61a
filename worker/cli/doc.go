// Package cli is the command line: one file a verb.
//
// Zone: worker.
//
// Given: words by the user who typed them, who is trusted with his own files
// and keys, and settings by the operator.
//
// Authority: its user's. Called by root, it gives root up first (user.go).
//
// Refuses: flags and verbs that it does not know. Our own words go to stderr
// only, for stdout is the engine's: one line of ours there would break an MCP
// server that speaks over stdio.
package cli
