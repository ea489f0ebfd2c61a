// Gates measures the egress gate beside four public proxies and a bare relay:
// the same work, in turns, in one run.
//
// Everything happens in network namespaces that have no way out. Clients and
// proxies share one; the origin is a neighbour with a public address across a
// veth pair, so every proxy's address policy does its real work, ours with its
// two questions to the routing table. The proxies run as an ordinary user.
//
// Zone: none; linked into no program of ours.
//
// Given: a machine that is shared and noisy. So the contenders take turns, and
// what counts are medians over the rounds and ratios within a round.
//
// Authority: the caller's; as root the proxies are the user maus'.
//
// Refuses: to print a figure of a run that did not work, and to start anything
// in the network namespace that it was started in.
package main
