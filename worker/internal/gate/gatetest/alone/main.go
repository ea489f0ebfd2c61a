// Alone is the egress gate of one box in a process of its own, as the worker
// runs it, for the benchmark to measure beside other proxies.
//
// Zone: none; only bench starts it.
//
// Given: the address to listen at, as its one argument.
//
// Authority: the caller's.
//
// Refuses: what the gate refuses; it has no exceptions.
package main

import (
	"fmt"
	"net"
	"os"

	"github.com/openmausbot/botbox/worker/internal/gate/egress"
)

func main() {
	ln, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "alone:", err)
		os.Exit(111)
	}
	g := egress.New(egress.Options{Box: "bench", Max: 2048, Log: func(d egress.Decision) {
		fmt.Fprintf(os.Stderr, "%d %s %s %s:%d %s %v %d %d %v\n", d.Seq, d.Box, d.Method, d.Host, d.Port, d.Class, d.Allowed, d.Up, d.Down, d.Duration)
	}})
	fmt.Fprintln(os.Stderr, "alone:", g.Serve(ln))
	os.Exit(111)
}
