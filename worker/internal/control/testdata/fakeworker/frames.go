package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/openmausbot/botbox/shared/wire"
)

// hostileFrames writes what is no frame, or is not one now, after the worker has
// become ready.
func hostileFrames(mode string, order *wire.Order, raw func([]byte)) {
	line := func(verb wire.Verb, kv ...string) []byte {
		b, _ := order.Frame(wire.ToSupervisor, verb, kv...)
		return b
	}
	of := func(epoch, seq int) []byte { return fmt.Appendf(nil, "%d %d uid.lease bot=x\n", epoch, seq) }
	switch mode {
	case "half": // and its end, which closes the channel in the middle
		raw(line(wire.Pong)[:5])
		os.Exit(0)
	case "half-twice": // the two halves of two frames make none
		raw(line(wire.Pong)[:5])
		raw(line(wire.Pong))
	case "half-then-silence": // the next ping is never answered
		raw(line(wire.Pong)[:5])
	case "stall": // reads nothing and says nothing more
	case "replay":
		b := line(wire.UIDLease, "bot", "x")
		raw(b)
		raw(b)
	case "replay-hello":
		raw(fmt.Appendf(nil, "%d 1 hello.ack ver=%s build=%s\n", epoch(), wire.Version, wire.Build))
	case "next-epoch":
		raw(of(int(epoch())+1, 3))
	case "last-epoch":
		raw(of(int(epoch())-1, 3))
	case "gap":
		raw(of(int(epoch()), 4))
	case "empty-lines":
		for {
			raw(bytes.Repeat([]byte("\n"), 4096))
		}
	case "noise":
		for {
			b := make([]byte, 4096)
			for i := range b {
				b[i] = byte(rand.IntN(256))
			}
			raw(b)
		}
	case "one-long-line":
		for {
			raw(bytes.Repeat([]byte("1 3 pong"), 512))
		}
	case "lease-flood": // nothing but what it may say, as fast as it can
		for {
			raw(line(wire.UIDLease, "bot", "x"))
		}
	case "slow": // a frame that takes for ever, a byte at a time
		for _, c := range bytes.Repeat([]byte("9"), 5000) {
			raw([]byte{c})
			time.Sleep(time.Millisecond)
		}
	}
}
