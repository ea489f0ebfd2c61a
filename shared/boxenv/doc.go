// Package boxenv decides which environment variables enter a box, and holds
// the ones that every box gets from us.
//
// Zone: none; values and pure functions, used by the worker.
//
// Given: names of variables, by whoever asks for a box (a chat server's driver
// or the shell of botbox run). Values are never looked at.
//
// Authority: none.
//
// Refuses: every name that no row lets through. The refused rows hold in any
// letter case and against everything that a driver declares. Provider keys
// and their base URLs are neither passed nor refused here: they are the
// credential broker's to decide about.
//
// The table is read from above and the first row that fits decides. A list of
// what to keep out leaks by design, so this is a list of what to let in; the
// refused rows exist for the names that a driver may declare beside it.
package boxenv
