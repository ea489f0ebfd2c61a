package gatetest

import (
	"bufio"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Loopback is where most tests listen.
const Loopback = "127.0.0.1:0"

// Listen listens until the test ends. A path is a unix socket's.
func Listen(t testing.TB, address string) net.Listener {
	t.Helper()
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// Closed gives an address at which nobody listens.
func Closed(t testing.TB) netip.AddrPort {
	t.Helper()
	ln := Listen(t, Loopback)
	ln.Close()
	return netip.MustParseAddrPort(ln.Addr().String())
}

// Origin is the far side of a gate: a listener that counts who came, and
// keeps the heads that its script read.
type Origin struct {
	Listener net.Listener
	contacts atomic.Int64
	mu       sync.Mutex
	heads    []string
}

// Script is what an origin does with one connection, which is closed after it.
type Script func(o *Origin, c net.Conn, br *bufio.Reader)

// Serve lets a script answer at a listener until that is closed.
func Serve(ln net.Listener, script Script) *Origin {
	o := &Origin{Listener: ln}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			o.contacts.Add(1)
			go func() {
				defer c.Close()
				script(o, c, bufio.NewReader(c))
			}()
		}
	}()
	return o
}

// NewOrigin serves a script on loopback.
func NewOrigin(t testing.TB, script Script) *Origin {
	t.Helper()
	return Serve(Listen(t, Loopback), script)
}

// Contacts gives how many connections came.
func (o *Origin) Contacts() int64 { return o.contacts.Load() }

// Addr is where the origin listens.
func (o *Origin) Addr() netip.AddrPort { return netip.MustParseAddrPort(o.Listener.Addr().String()) }

// Port is the port of Addr as text.
func (o *Origin) Port() string {
	_, port, _ := net.SplitHostPort(o.Listener.Addr().String())
	return port
}

// At puts the origin's port where raw says PORT.
func (o *Origin) At(raw string) string { return strings.ReplaceAll(raw, "PORT", o.Port()) }

// Head reads a request's head and keeps it.
func (o *Origin) Head(br *bufio.Reader) string {
	head := ReadHead(br)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.heads = append(o.heads, head)
	return head
}

// LastHead gives the head that was read last.
func (o *Origin) LastHead() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.heads) == 0 {
		return ""
	}
	return o.heads[len(o.heads)-1]
}

// Echo is the script of an origin that sends everything back. It does not
// splice, for the pipes of that stay open when the connection has ended.
func Echo(_ *Origin, c net.Conn, br *bufio.Reader) { io.Copy(struct{ io.Writer }{c}, br) }

// Count is the script of an origin that only counts.
func Count(*Origin, net.Conn, *bufio.Reader) {}

// ReadHead reads up to the empty line, or as far as it goes.
func ReadHead(br *bufio.Reader) string {
	var b strings.Builder
	for !strings.HasSuffix(b.String(), "\r\n\r\n") {
		line, err := br.ReadString('\n')
		b.WriteString(line)
		if err != nil {
			break
		}
	}
	return b.String()
}
