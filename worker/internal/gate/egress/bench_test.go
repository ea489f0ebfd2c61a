package egress

import (
	"bufio"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

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
	echo := gatetest.NewOrigin(b, gatetest.Echo)
	target := echo.Addr().String()
	b.Run("bare-relay", func(b *testing.B) {
		relay := gatetest.NewOrigin(b, func(_ *gatetest.Origin, c net.Conn, _ *bufio.Reader) {
			if up, err := net.Dial("tcp", target); err == nil {
				gate.Tunnel(c.(*net.TCPConn), up.(*net.TCPConn), time.Minute)
			}
		})
		for b.Loop() {
			once(b, relay.Addr().String(), "x", "x")
		}
	})
	g := New(Options{Dialer: gate.Dialer{Except: []netip.AddrPort{echo.Addr()}}})
	address := gatetest.Start(b, g)
	b.Run("gate", func(b *testing.B) {
		for b.Loop() {
			once(b, address, "CONNECT "+target+" HTTP/1.1\r\n\r\nx", "HTTP/1.1 200 Connection established\r\n\r\nx")
		}
	})
	b.Run("refusal", func(b *testing.B) {
		for b.Loop() {
			once(b, address, "CONNECT 10.0.0.1:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 403 ")
		}
	})
	b.Run("bulk", func(b *testing.B) { bulk(b, address, target) })
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
