// Boxprobe is the hostile self-check. It runs inside a real box, tries what a
// hostile bot would try, and says of every attempt whether the box held.
//
// Zone: inside a box; static, without net/http and without cryptography.
//
// Given: the fixture that botbox check laid out outside, as JSON in the file
// that its one argument names, and the environment of the box.
//
// Authority: none, and it tries to get some. Every attempt is harmless when it
// succeeds: system calls carry bad arguments, routes are asked with an
// unsent datagram, the canary is signalled with signal 0, AF_VSOCK is never
// connected.
//
// Refuses: to guess. A check passes only if what it saw proves its claim; what
// it could not find out is inconclusive, which counts as failed.
//
// # Use
//
// boxprobe [--profile seed|full] FIXTURE runs the 29 checks of the seed, or all;
// boxprobe --list prints the table. The checks expect an engine's box, with a
// gate on each of egress_port, harness_port and broker_port of its loopback. It
// ends with 0 whenever it has printed the last line, whatever the verdicts.
//
// With the word canary it is the opposite, outside every box: a process that
// carries the words that follow as its mark, repeats its stdin, and harms
// nothing by being found. With the word asker it is whoever asks for a box: it
// starts the program that the words name, and is killed by botbox check, which
// looks whether the box outlives it.
//
// # Output
//
// One JSON line per check, {"id","layer","verdict","ms","why"} with verdict
// pass, fail or inconclusive, and a last line {"done":true,"count","build"}.
// A check that panics or takes too long is inconclusive. A check may also end
// the whole probe (SIGSYS, SIGKILL): whoever reads the lines takes every id
// that is missing, and all of them when the last line is missing, for
// inconclusive.
//
// # Controls
//
// A refusal proves nothing unless the same attempt works where it is allowed
// to. Each row of the table (boxprobe --list) names its control. Those that
// begin with "inside:" are part of the check. Those that begin with "outside:"
// are the duty of botbox check, which must do them in the same run, before and
// after the probe, and take the check for inconclusive if one fails:
//
//   - D1 D2 D3 D5 D6: each file of the fixture can be read outside at its path,
//     by the user that runs the box.
//   - D4: a connect to the server's socket is answered outside.
//   - D7: the data folder outside holds names that are not among put_backs.
//   - P1 P2: the canary's argv and environ hold the marker, read from /proc
//     outside. P3: the canary is alive after the probe has ended.
//   - N1: the port answers on 127.0.0.1 outside.
//   - N2: the fixture server's log has the internal route and no other. It
//     listens on harness_port of the host's loopback, so that in a box without
//     a network namespace the server itself answers, every route with 200.
//   - N3: the address and port answer outside. On a machine without a network
//     127.0.0.2 will do: the box's loopback has nobody on it either.
//   - N4: connecting a datagram socket to each address of "routed" succeeds
//     outside. If it does for none, the fixture says no_route_outside.
//   - E1 E2 E3: the names were in the environment that the box was asked with.
//   - T1 T2: the files are there outside, before and after.
//   - W1: the writable folders are unchanged outside, after. W2: the file
//     boxprobe.w2 lies in the work folder and in the bot's folder outside, with
//     the marker in it, and the port of N1 saw no connection.
//   - B1 B2: the worker was given the key that the two halves make.
//   - B4: the upstream was called with the key, in its own header, and once; it
//     saw neither the token nor the credential that the probe sent.
//   - B5 B6: the upstream was not called for them.
//   - N02 N04 N07: the ports, the datagram port and the abstract socket answer
//     outside.
//   - N11 N20: the port of N1 saw no connection. N12: the name was looked up once
//     for each of the two requests, and nobody came to its second answer.
//   - N14 N15: as N2. N17: what the probe answered came back.
//   - B07 to B14: the calls that were to arrive did, each under the name of its
//     check ("?check=B07"), and no other; nobody came to the decoy, nor to where
//     the redirect of B13 leads. B08: the dead tokens were good before. B10: the
//     other box's token was good on its own listener before, and is dead there
//     afterwards.
//   - S10: the key can be read in the session that the box was started from.
//   - P07: the namespaces are read of a process outside.
//   - S15: the folder can be written outside, and is empty afterwards.
//
// The other rows of the full profile name theirs in the table. Some rows have
// no attempt of ours at all (--list: outside): botbox check tries them.
//
// The key never stands in the fixture: key_a and key_b are hex of the same
// length, and the key is their exclusive or.
package main
