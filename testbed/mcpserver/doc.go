// Package mcpserver is an MCP server that speaks exactly one of the protocol's
// five revisions, and is strict about it: what passes here, a broker has not
// bent.
//
// Zone: none; it stands in for somebody's server in tests.
//
// Given: requests by MCP clients, through the broker or directly.
//
// Authority: none.
//
// Refuses: every path and query but its own, requests without its header, and
// what its revision does not allow. It writes down what it got, and what was
// wrong with it.
package mcpserver
