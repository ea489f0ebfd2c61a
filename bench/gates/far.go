package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"strings"

	"github.com/openmausbot/botbox/bench/hop"
)

// block is what bulk transfers are written in.
var block = make([]byte, 256<<10)

// serveOrigin does what the first byte says: e sends everything back, d sends
// as many bytes as the next 8 bytes say, u takes them and says so.
func serveOrigin(address string) error {
	return hop.Accept(address, func(c *net.TCPConn) {
		var order [9]byte
		if _, err := io.ReadFull(c, order[:1]); err != nil {
			return
		}
		if order[0] == 'e' {
			io.Copy(onlyWriter{c}, c)
			return
		}
		if _, err := io.ReadFull(c, order[1:]); err != nil {
			return
		}
		n := int64(binary.BigEndian.Uint64(order[1:]))
		if order[0] == 'd' {
			for ; n > 0; n -= int64(len(block)) {
				if _, err := c.Write(block); err != nil {
					return
				}
			}
			io.Copy(io.Discard, c)
			return
		}
		drain(c, n)
		c.Write([]byte("u"))
		io.Copy(io.Discard, c)
	})
}

// onlyWriter keeps io.Copy from splicing, which would cost pipes.
type onlyWriter struct{ io.Writer }

// drain reads n bytes.
func drain(c io.Reader, n int64) error {
	buf := make([]byte, len(block))
	for n > 0 {
		k, err := c.Read(buf[:min(n, int64(len(buf)))])
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}

// serveRelay is what a tunnel costs at the least in Go: it reads a head, dials
// what it says, and copies. It judges nothing.
func serveRelay(address string) error {
	return hop.Accept(address, func(c *net.TCPConn) {
		br := bufio.NewReader(c)
		line, err := br.ReadString('\n')
		for field := line; err == nil && field != "\r\n"; {
			field, err = br.ReadString('\n')
		}
		words := strings.Fields(line)
		if err != nil || len(words) != 3 {
			return
		}
		hop.Dial(c, words[1], "HTTP/1.1 200 OK\r\n\r\n")
	})
}
