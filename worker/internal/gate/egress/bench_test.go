package egress

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

func echoServer(b *testing.B) net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return ln
}

// once opens a connection, sends the head and one byte, and waits for answer.
func once(b *testing.B, address, head, answer string) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	io.WriteString(c, head)
	buf := make([]byte, len(answer))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != answer {
		b.Fatalf("%q, %v", buf, err)
	}
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// The bare relay knows one upstream, reads no head and checks nothing; the
// gate's median is promised to stay within 1.05 of a relay that does read it.
// The exception that makes loopback reachable here skips the routing question,
// which a public address pays twice: see BenchmarkRouteTo of package gate.
func BenchmarkConnect(b *testing.B) {
	echo := echoServer(b)
	target := echo.Addr().String()
	b.Run("bare-relay", func(b *testing.B) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer ln.Close()
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() {
					up, err := net.Dial("tcp", target)
					if err != nil {
						return
					}
					gate.Tunnel(c.(*net.TCPConn), up.(*net.TCPConn), time.Minute)
				}()
			}
		}()
		for b.Loop() {
			once(b, ln.Addr().String(), "x", "x")
		}
	})
	g := New(Options{Dialer: gate.Dialer{Except: []netip.AddrPort{netip.MustParseAddrPort(target)}}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go g.Serve(ln)
	defer g.Close()
	b.Run("gate", func(b *testing.B) {
		for b.Loop() {
			once(b, ln.Addr().String(), "CONNECT "+target+" HTTP/1.1\r\n\r\nx", "HTTP/1.1 200 Connection established\r\n\r\nx")
		}
	})
	b.Run("refusal", func(b *testing.B) {
		for b.Loop() {
			once(b, ln.Addr().String(), "CONNECT 10.0.0.1:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 403 ")
		}
	})
	b.Run("bulk", func(b *testing.B) { bulk(b, ln.Addr().String(), target) })
}

func bulk(b *testing.B, proxy, target string) {
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "CONNECT "+target+" HTTP/1.1\r\n\r\n")
	io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n")))
	block := []byte(strings.Repeat("x", 1<<20))
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		go c.Write(block)
		if _, err := io.ReadFull(c, make([]byte, len(block))); err != nil {
			b.Fatal(err)
		}
	}
}
