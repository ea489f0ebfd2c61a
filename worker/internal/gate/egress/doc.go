// Package egress is a box's HTTP proxy: CONNECT, and plain http by absolute
// URL.
//
// Zone: worker.
//
// Given: requests from untrusted code in one box, accepted on a listener that
// only this box can reach, which is therefore its identity.
//
// Authority: it connects to public hosts through gate.Dialer. It never opens
// TLS, so it sees hosts and byte counts, and for plain http the traffic.
//
// Refuses: what gate.Dialer refuses, and every request that breaks the strict
// grammar of http1 and hostport. It follows no redirect, sends no credentials,
// and adds no Via field (some origins stop compressing when they see one).
package egress
