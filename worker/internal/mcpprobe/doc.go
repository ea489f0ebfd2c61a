// Package mcpprobe tries an MCP server the way a bot reaches it: with a grant
// like a turn's, through a listener of the broker's, and lists its tools.
//
// Zone: worker.
//
// Given: a server that somebody typed into the settings, and whatever that
// server answers (hostile: it ends up on a screen).
//
// Authority: a grant for the server, for as long as the test runs; and a
// request of its own with the server's headers, to that server's origin only,
// to tell whose fault a failure is.
//
// Refuses: to take longer than Within, to read more than a few megabytes, to
// take headers to another origin, and to call a server good that only this
// process can reach.
package mcpprobe
