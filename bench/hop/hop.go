// Package hop is one more hop of a connection in Go, as bare as it can be: what
// it costs, every proxy costs.
//
// Zone: none; only the benchmarks use it.
//
// Given: connections of a benchmark's own programs, on loopback.
//
// Authority: the caller's.
//
// Refuses: nothing.
package hop

import (
	"io"
	"net"
)

// Accept serves each connection on a goroutine, for ever.
func Accept(address string, serve func(*net.TCPConn)) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			serve(c.(*net.TCPConn))
		}()
	}
}

// Dial connects to where c's bytes go, says that it did, and passes bytes on in
// both directions until upstream has no more.
func Dial(c *net.TCPConn, upstream, connected string) {
	up, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	defer up.Close()
	io.WriteString(c, connected)
	go func() {
		io.Copy(up, c)
		up.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(c, up)
}
