package socks

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/addrpolicy"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// rig is a gate with its log.
type rig struct {
	address   string
	gate      *Gate
	mu        sync.Mutex
	decisions []Decision
}

func start(t *testing.T, o Options) *rig {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{address: ln.Addr().String()}
	o.Box = "box_1"
	o.Log = func(d Decision) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.decisions = append(r.decisions, d)
	}
	r.gate = New(o)
	go r.gate.Serve(ln)
	t.Cleanup(r.gate.Close)
	return r
}

// last waits for the nth decision.
func (r *rig) last(t *testing.T, n int) Decision {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		r.mu.Lock()
		if len(r.decisions) == n {
			d := r.decisions[n-1]
			r.mu.Unlock()
			return d
		}
		r.mu.Unlock()
	}
	t.Fatalf("there is no decision %d", n)
	return Decision{}
}

// client opens a connection and writes bytes; the connection is closed with
// the test.
func (r *rig) client(t *testing.T, raw string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, raw); err != nil {
		t.Fatal(err)
	}
	return c
}

func expect(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("got %q (%v), want %q", got[:n], err, want)
	}
}

func answer(r Reply) string { return string(r.bytes()) }

const hi = "\x05\x01\x00"
const accepted = "\x05\x00"

func byName(host string, port uint16) string {
	return "\x05\x01\x00\x03" + string([]byte{byte(len(host))}) + host + string([]byte{byte(port >> 8), byte(port)})
}

func byAddr(a netip.Addr, port uint16) string {
	kind := byte(atypIPv4)
	if a.Is6() {
		kind = atypIPv6
	}
	return string([]byte{5, 1, 0, kind}) + string(a.AsSlice()) + string([]byte{byte(port >> 8), byte(port)})
}

// echo is an origin that sends everything back, and counts its clients.
func echo(t *testing.T) (at netip.AddrPort, hits *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	hits = &atomic.Int64{}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			hits.Add(1)
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return netip.MustParseAddrPort(ln.Addr().String()), hits
}

// The whole of a client's side may come in one segment, early data too, and
// arrives whole; half-close passes both ways.
func TestATunnel(t *testing.T) {
	at, _ := echo(t)
	names := &gatetest.Resolver{Names: map[string]string{"origin.example": "127.0.0.1"}}
	r := start(t, Options{Dialer: gate.Dialer{Resolver: names, Except: []netip.AddrPort{at}}})
	for i, request := range []string{byName("ORIGIN.example.", at.Port()), byName("127.0.0.1", at.Port()), byAddr(at.Addr(), at.Port()), byName("::ffff:127.0.0.1", at.Port()), byAddr(netip.MustParseAddr("::ffff:127.0.0.1"), at.Port())} {
		c := r.client(t, hi+request+"early")
		expect(t, c, accepted+answer(Succeeded)+"early")
		io.WriteString(c, " late")
		c.(*net.TCPConn).CloseWrite()
		expect(t, c, " late")
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("after the end: %d, %v", n, err)
		}
		d := r.last(t, i+1)
		if !d.Allowed || d.Method != "socks" || d.Box != "box_1" || d.Port != at.Port() || d.Up != 10 || d.Down != 10 || d.Class != "loopback" || d.Status != 0 {
			t.Errorf("decision %+v", d)
		}
	}
	if n := names.Queries("origin.example"); n != 1 {
		t.Errorf("%d queries for one request", n)
	}
}

// Every row of the address policy, in every form that a request can have, is
// refused with one and the same reply, and dials nothing.
func TestTheAddressPolicy(t *testing.T) {
	at, hits := echo(t)
	names := &gatetest.Resolver{Names: map[string]string{}}
	dialer := gate.Dialer{Resolver: names}
	r := start(t, Options{Dialer: dialer})
	n := 0
	refused := func(what, request string) {
		c := r.client(t, hi+request)
		expect(t, c, accepted+answer(NotAllowed))
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: %v, want the end", what, err)
		}
		n++
		c.Close()
		if d := r.last(t, n); d.Allowed || d.Class == "" || d.Status != int(NotAllowed) {
			t.Errorf("%s: %+v", what, d)
		}
	}
	for _, row := range addrpolicy.Rows() {
		a := row.Prefix.Addr()
		refused(a.String(), byAddr(a, at.Port()))
		refused("text "+a.String(), byName(a.String(), at.Port()))
	}
	refused("mapped", byAddr(netip.MustParseAddr("::ffff:127.0.0.1"), at.Port()))
	refused("localhost", byName("LOCALHOST.", at.Port()))
	refused("metadata", byName("metadata.google.internal", 80))
	refused("port 25", byName("a.example", 25))
	names.Names["rebind.example"] = "8.8.4.4,127.0.0.1"
	refused("rebinding", byName("rebind.example", at.Port()))
	if hits.Load() != 0 {
		t.Errorf("the origin was contacted %d times", hits.Load())
	}
	// Positive control: the same request, excepted.
	c := start(t, Options{Dialer: gate.Dialer{Except: []netip.AddrPort{at}}}).client(t, hi+byAddr(at.Addr(), at.Port()))
	expect(t, c, accepted+answer(Succeeded))
}

func TestWhatIsNotConnect(t *testing.T) {
	r := start(t, Options{Dialer: gate.Dialer{Resolver: &gatetest.Resolver{}}})
	for i, c := range []struct{ in, out, class string }{
		{hi + "\x05\x02\x00\x01\x08\x08\x04\x04\x00\x50", accepted + answer(NoCommand), "malformed"},
		{hi + "\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00", accepted + answer(NoCommand), "malformed"},
		{hi + "\x05\x01\x00\x09", accepted + answer(NoAddress), "malformed"},
		{hi + byName("2130706433", 80), accepted + answer(Failed), "malformed"},
		{hi + byName("none.example", 80), accepted + answer(NoHost), "dns"},
		{"\x05\x01\x02", "\x05\xff", "malformed"},
		{"\x04\x01\x00\x50\x08\x08\x04\x04\x00", "", "malformed"},
		{"GET http://a.example/ HTTP/1.1\r\n\r\n", "", "malformed"},
		{hi + "\x04", accepted, "malformed"},
	} {
		conn := r.client(t, c.in)
		conn.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(conn)
		// A close with unread bytes is a reset; the answers are read before it.
		if string(got) != c.out || err != nil && c.out != "" {
			t.Errorf("%q: %q, %v; want %q", c.in, got, err, c.out)
		}
		if d := r.last(t, i+1); d.Class != c.class || d.Allowed {
			t.Errorf("%q: %+v", c.in, d)
		}
	}
}

// A client that never says where to is cut off, and one at the cap is told.
func TestSlowAndMany(t *testing.T) {
	r := start(t, Options{Handshake: 50 * time.Millisecond})
	c := r.client(t, hi+"\x05\x01")
	expect(t, c, accepted)
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a slow client: %v", err)
	}
	r = start(t, Options{Max: 1})
	first := r.client(t, hi)
	expect(t, first, accepted)
	second := r.client(t, "")
	expect(t, second, "\x05\xff")
	second.Close()
	if d := r.last(t, 1); d.Class != "limit" {
		t.Errorf("%+v", d)
	}
}

// An open tunnel outlives the handshake's deadline, and ends with the gate.
func TestCloseEndsTunnels(t *testing.T) {
	at, _ := echo(t)
	r := start(t, Options{Handshake: 50 * time.Millisecond, Dialer: gate.Dialer{Except: []netip.AddrPort{at}}})
	c := r.client(t, hi+byAddr(at.Addr(), at.Port()))
	expect(t, c, accepted+answer(Succeeded))
	time.Sleep(100 * time.Millisecond)
	io.WriteString(c, "x")
	expect(t, c, "x")
	r.gate.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the tunnel outlives its gate")
	}
}

func TestCurl(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "from ", r.Host) }))
	defer site.Close()
	at := netip.MustParseAddrPort(strings.TrimPrefix(site.URL, "http://"))
	names := &gatetest.Resolver{Names: map[string]string{"site.example": "127.0.0.1", "inside.example": "10.0.0.1"}}
	r := start(t, Options{Dialer: gate.Dialer{Resolver: names, Except: []netip.AddrPort{at}}})
	curl := func(url string) string {
		out, err := exec.Command("curl", "-sS", "--noproxy", "", "--socks5-hostname", r.address, url).CombinedOutput()
		if err != nil {
			return fmt.Sprintf("%s (%v)", strings.TrimSpace(string(out)), err)
		}
		return string(out)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	host := fmt.Sprintf("site.example:%d", at.Port())
	if got := curl("http://" + host + "/"); got != "from "+host {
		t.Errorf("%s", got)
	}
	for url, want := range map[string]string{"http://inside.example/": "(2) (exit status 97)", "http://[::1]:1/": "(2) (exit status 97)", "http://none.example/": "(4) (exit status 97)"} {
		if got := curl(url); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

// A neighbour with public addresses is reached by name and by literal.
func TestPublicNeighbour(t *testing.T) {
	if !gatetest.Inside(t) {
		return
	}
	ln := gatetest.Neighbour(t)("[::]:80")
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "far")
			c.Close()
		}
	}()
	names := &gatetest.Resolver{Names: map[string]string{"both.example": gatetest.Far6 + "," + gatetest.Far4, "near.example": gatetest.Near4}}
	r := start(t, Options{Dialer: gate.Dialer{Resolver: names}})
	for _, request := range []string{byName("both.example", 80), byName(gatetest.Far4, 80), byName(gatetest.Far6, 80), byAddr(netip.MustParseAddr(gatetest.Far4), 80), byAddr(netip.MustParseAddr(gatetest.Far6), 80)} {
		expect(t, r.client(t, hi+request), accepted+answer(Succeeded)+"far")
	}
	for request, reply := range map[string]Reply{
		byName("near.example", 80): NotAllowed, byAddr(netip.MustParseAddr(gatetest.Near6), 80): NotAllowed,
		byAddr(netip.MustParseAddr(gatetest.Far4), 81): Refused, byAddr(netip.MustParseAddr("2700::1"), 80): NoRoute,
	} {
		expect(t, r.client(t, hi+request), accepted+answer(reply))
	}
}
