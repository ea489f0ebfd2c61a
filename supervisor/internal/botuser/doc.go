// Package botuser gives each bot a Linux user of its own.
//
// Zone: supervisor, after the drop.
//
// Given: frames from the worker. They name a bot, a lease of ours and a child
// of the worker's, and any of the three may be a lie.
//
// Authority: CAP_SETUID and CAP_SETGID, used on one thread with the account's
// user for the two lines of a user namespace's maps; CAP_KILL, for processes
// of a leased user and nobody else's.
//
// Refuses: every namespace that is not fresh, unmapped, the account's own and
// a direct child of ours, every process that is not the worker's child, every
// lease that is not open. No command line, path, environment or free user id
// crosses to root: which id a bot has is decided here, once for ever.
//
//	worker                                    supervisor
//	uid.lease bot              ───────────►   its user: the table's, or the next
//	        ◄───────  uid.leased lease uid
//	clone(CLONE_NEWUSER) holder
//	uid.map lease pid          ───────────►   looks at the namespace, writes
//	        ◄───────  uid.mapped lease        its two maps; the lease is over
package botuser
