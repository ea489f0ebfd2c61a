package socks

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

// A browser's bytes are counted as every box's: what there is passes, the
// tunnel ends, and the next request is not allowed.
func TestBudget(t *testing.T) {
	const limit = 100 << 10
	endless, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer endless.Close()
	go func() {
		for {
			c, err := endless.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, bytes.NewReader(make([]byte, 10*limit)))
			}()
		}
	}()
	ap := netip.MustParseAddrPort(endless.Addr().String())
	decisions := make(chan Decision, 10)
	g := New(Options{
		Dialer: gate.Dialer{Except: []netip.AddrPort{ap}, Budget: gate.NewBudget(limit, func() {})},
		Log:    func(d Decision) { decisions <- d },
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go g.Serve(ln)
	defer g.Close()
	ask := func() []byte {
		t.Helper()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		c.Write(binary.BigEndian.AppendUint16([]byte{5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1}, ap.Port()))
		b, _ := io.ReadAll(c)
		return b
	}
	const heads = 2 + 10 // the greeting's answer and the reply
	if b := ask(); len(b) != heads+limit || b[3] != byte(Succeeded) {
		t.Errorf("%d bytes, want %d", len(b), heads+limit)
	}
	if d := <-decisions; !d.Allowed || d.Down != limit {
		t.Errorf("%+v", d)
	}
	if b := ask(); len(b) != heads || b[3] != byte(NotAllowed) {
		t.Errorf("afterwards: %v", b)
	}
	if d := <-decisions; d.Allowed || d.Class != "budget" {
		t.Errorf("%+v", d)
	}
}
