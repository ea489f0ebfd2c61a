// Package addrpolicy says which addresses a box may reach.
//
// Zone: none; values and pure functions, linked into the worker and boxprobe.
//
// Given: addresses and lower-case names, chosen by untrusted code in a box or
// by whoever answers its DNS queries.
//
// Authority: none. It cannot know this machine's own addresses; the dialer
// asks the kernel's routing table for those.
//
// Refuses: by default. An address is public only as IPv4 unicast or inside
// 2000::/3, and only if no row of the table covers it. Go's own Is… methods
// are not used: 40 of 65 special addresses pass the common idiom made of them.
package addrpolicy
