// Package login keeps a subscription's sign-in outside the boxes: it reads the
// file that the engine's own sign-in made, renews it before it expires and
// writes it back.
//
// Zone: worker.
//
// Given: the sign-in files below HOME, by the user and by engines that run
// outside of a box, or in a box that sees them; answers of the issuer, over TLS.
//
// Authority: access tokens for the broker, in memory; the refresh token, sent
// to its issuer only; replacing the one file.
//
// Refuses: a file that is no plain file of the user's own below HOME; an answer
// without a token that can stand in a header; to use a token that is not in the
// file yet, for a refresh token works once, and one that is lost signs the user
// out.
//
// # Decisions
//
// Many boxes wait for one renewal. The user's own engine may renew at the same
// time: Claude Code's lock is taken, the file is read again before and after,
// and whoever has the token that lives longer wins.
package login
