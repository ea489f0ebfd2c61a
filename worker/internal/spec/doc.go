// Package spec reads the description of one boxed turn.
//
// Zone: worker.
//
// Given: JSON from whoever asks for a box: `botbox run`, a driver through
// lease.sock, the supervisor's CMD. It is not trusted: a driver can be wrong,
// and a bot may have had its say in what the driver asks for.
//
// Authority: none; bytes in, a value out. No path is opened and no name is
// looked up here.
//
// Refuses: unknown fields, doubled fields, fields in another letter case, more
// than MaxBytes, and every feature that this build does not have: what a spec
// asks for is done or refused, never ignored.
package spec
