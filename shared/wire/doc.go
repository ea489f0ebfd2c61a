// Package wire holds the forms of everything that crosses from one program of
// ours to another as bytes.
//
// Zone: none; pure functions, linked into every program.
//
// Given: bytes from the other side. Neither side is trusted to write them
// well: a frame, a record or a start spec is decoded whole or refused whole.
//
// Authority: none.
//
// Refuses: anything but the one canonical spelling of a value, so that for
// every decoder Encode(Decode(x)) == x. There is no skipping of what is
// unknown, for the two sides always come from one build.
//
// Control channel bbx/1, one line a frame, one write a line:
//
//	supervisor                         worker
//	   │ 1 1 hello ver=1 build=B  ───►   │
//	   │ ◄───  1 1 hello.ack ver=1 build=B
//	   │ ◄───  1 2 ready                 │
//	   │ 1 2 ping                 ───►   │  every 5 s
//	   │ ◄───  1 3 pong                  │
//	   │ 1 3 box.signal pid=N sig=1 ──►  │
//	   │ 1 4 drain seconds=3.200  ───►   │
//	   │ ◄───  1 4 drained               │  then the worker exits 0
package wire
