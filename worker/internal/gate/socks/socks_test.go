package socks

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/addrpolicy"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// rig is a gate with its log.
type rig struct {
	address string
	gate    *Gate
	log     gatetest.Log[Decision]
}

func start(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{}
	o.Box, o.Log = "box_1", r.log.Add
	r.gate = New(o)
	r.address = gatetest.Start(t, r.gate)
	return r
}

// client opens a connection and writes bytes.
func (r *rig) client(t *testing.T, raw string) *net.TCPConn {
	t.Helper()
	c := gatetest.Dial(t, r.address)
	gatetest.Send(t, c, raw)
	return c
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

// The whole of a client's side may come in one segment, early data too, and
// arrives whole; half-close passes both ways.
func TestATunnel(t *testing.T) {
	at := gatetest.NewOrigin(t, gatetest.Echo).Addr()
	names := &gatetest.Resolver{Names: map[string]string{"origin.example": "127.0.0.1"}}
	r := start(t, Options{Dialer: gate.Dialer{Resolver: names, Except: []netip.AddrPort{at}}})
	for i, request := range []string{byName("ORIGIN.example.", at.Port()), byName("127.0.0.1", at.Port()), byAddr(at.Addr(), at.Port()), byName("::ffff:127.0.0.1", at.Port()), byAddr(netip.MustParseAddr("::ffff:127.0.0.1"), at.Port())} {
		c := r.client(t, hi+request+"early")
		gatetest.Expect(t, c, accepted+answer(Succeeded)+"early")
		io.WriteString(c, " late")
		c.CloseWrite()
		gatetest.Expect(t, c, " late")
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("after the end: %d, %v", n, err)
		}
		d := r.log.Nth(t, i+1)
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
	o := gatetest.NewOrigin(t, gatetest.Echo)
	at := o.Addr()
	names := &gatetest.Resolver{Names: map[string]string{}}
	dialer := gate.Dialer{Resolver: names}
	r := start(t, Options{Dialer: dialer})
	n := 0
	refused := func(what, request string) {
		c := r.client(t, hi+request)
		gatetest.Expect(t, c, accepted+answer(NotAllowed))
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: %v, want the end", what, err)
		}
		n++
		c.Close()
		if d := r.log.Nth(t, n); d.Allowed || d.Class == "" || d.Status != int(NotAllowed) {
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
	if o.Contacts() != 0 {
		t.Errorf("the origin was contacted %d times", o.Contacts())
	}
	// Positive control: the same request, excepted.
	c := start(t, Options{Dialer: gate.Dialer{Except: []netip.AddrPort{at}}}).client(t, hi+byAddr(at.Addr(), at.Port()))
	gatetest.Expect(t, c, accepted+answer(Succeeded))
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
		conn.CloseWrite()
		got, err := io.ReadAll(conn)
		// A close with unread bytes is a reset; the answers are read before it.
		if string(got) != c.out || err != nil && c.out != "" {
			t.Errorf("%q: %q, %v; want %q", c.in, got, err, c.out)
		}
		if d := r.log.Nth(t, i+1); d.Class != c.class || d.Allowed {
			t.Errorf("%q: %+v", c.in, d)
		}
	}
}

// A client that never says where to is cut off, and one at the cap is told.
func TestSlowAndMany(t *testing.T) {
	r := start(t, Options{Handshake: 50 * time.Millisecond})
	c := r.client(t, hi+"\x05\x01")
	gatetest.Expect(t, c, accepted)
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a slow client: %v", err)
	}
	r = start(t, Options{Max: 1})
	first := r.client(t, hi)
	gatetest.Expect(t, first, accepted)
	second := r.client(t, "")
	gatetest.Expect(t, second, "\x05\xff")
	second.Close()
	if d := r.log.Nth(t, 1); d.Class != "limit" {
		t.Errorf("%+v", d)
	}
}

// An open tunnel outlives the handshake's deadline, and ends with the gate.
func TestCloseEndsTunnels(t *testing.T) {
	at := gatetest.NewOrigin(t, gatetest.Echo).Addr()
	r := start(t, Options{Handshake: 50 * time.Millisecond, Dialer: gate.Dialer{Except: []netip.AddrPort{at}}})
	c := r.client(t, hi+byAddr(at.Addr(), at.Port()))
	gatetest.Expect(t, c, accepted+answer(Succeeded))
	time.Sleep(100 * time.Millisecond)
	io.WriteString(c, "x")
	gatetest.Expect(t, c, "x")
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
	gatetest.Serve(ln, func(_ *gatetest.Origin, c net.Conn, _ *bufio.Reader) { io.WriteString(c, "far") })
	names := &gatetest.Resolver{Names: map[string]string{"both.example": gatetest.Far6 + "," + gatetest.Far4, "near.example": gatetest.Near4}}
	r := start(t, Options{Dialer: gate.Dialer{Resolver: names}})
	for _, request := range []string{byName("both.example", 80), byName(gatetest.Far4, 80), byName(gatetest.Far6, 80), byAddr(netip.MustParseAddr(gatetest.Far4), 80), byAddr(netip.MustParseAddr(gatetest.Far6), 80)} {
		gatetest.Expect(t, r.client(t, hi+request), accepted+answer(Succeeded)+"far")
	}
	for request, reply := range map[string]Reply{
		byName("near.example", 80): NotAllowed, byAddr(netip.MustParseAddr(gatetest.Near6), 80): NotAllowed,
		byAddr(netip.MustParseAddr(gatetest.Far4), 81): Refused, byAddr(netip.MustParseAddr("2700::1"), 80): NoRoute,
	} {
		gatetest.Expect(t, r.client(t, hi+request), accepted+answer(reply))
	}
}
