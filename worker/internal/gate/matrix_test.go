package gate_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/addrpolicy"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/egress"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
	"github.com/openmausbot/botbox/worker/internal/gate/socks"
)

// points are the addresses of a prefix that a wrong mask or a wrong comparison
// would get wrong: its first, middle and last, and those next to it.
func points(p netip.Prefix) (out []netip.Addr) {
	first := p.Addr()
	middle, last := first.AsSlice(), first.AsSlice()
	for i := p.Bits(); i < first.BitLen(); i++ {
		last[i/8] |= 1 << (7 - i%8)
	}
	if i := p.Bits(); i < first.BitLen() {
		middle[i/8] |= 1 << (7 - i%8)
	}
	m, _ := netip.AddrFromSlice(middle)
	l, _ := netip.AddrFromSlice(last)
	for _, a := range []netip.Addr{first, m, l, first.Prev(), l.Next()} {
		if a.IsValid() {
			out = append(out, a)
		}
	}
	return out
}

// refused is the slow and plain reading of the table, apart from Classify.
func refused(a netip.Addr) bool {
	for _, row := range addrpolicy.Rows() {
		if row.Prefix.Contains(a) {
			return true
		}
	}
	return a.Is6() && !netip.MustParsePrefix("2000::/3").Contains(a)
}

// spelling is one way to ask for an address: what stands in the request, and
// what the name server says of it.
type spelling struct {
	host      string // as in a URL
	zone      string // the answer for the name, or for the name's alias
	malformed bool
	mixed     bool // with a public address beside it
}

func spellings(a netip.Addr) []spelling {
	mapped := "::ffff:" + a.String()
	if a.Is6() {
		return []spelling{
			{host: "[" + a.String() + "]"}, {host: "[" + a.StringExpanded() + "]"},
			{host: "aaaa.example", zone: a.String()}, {host: "cname.example", zone: a.String()},
			{host: "mixed.example", zone: gatetest.Far4 + "," + a.String(), mixed: true},
			{host: "mixed6.example", zone: a.String() + "," + gatetest.Far6, mixed: true},
		}
	}
	hex := a.As4()
	return []spelling{
		{host: a.String()}, {host: "[" + mapped + "]"}, {host: fmt.Sprintf("[::ffff:%x%02x:%x%02x]", hex[0], hex[1], hex[2], hex[3])},
		{host: "[" + a.String() + "]", malformed: true},
		{host: "a.example", zone: a.String()}, {host: "aaaa.example", zone: mapped}, {host: "cname.example", zone: a.String()},
		{host: "mixed.example", zone: gatetest.Far4 + "," + a.String(), mixed: true},
		{host: "mixed6.example", zone: a.String() + "," + gatetest.Far6, mixed: true},
	}
}

// matrix asks three gates, over unix sockets so that every TCP packet in the
// namespace is one of a gate.
type matrix struct {
	t       *testing.T
	paths   map[string]string // form → socket
	mu      sync.Mutex
	zone    string
	dialled []netip.Addr
}

func newMatrix(t *testing.T) *matrix {
	m := &matrix{t: t, paths: map[string]string{}}
	d := gate.Dialer{Resolver: gatetest.Zone(m.lookup).Resolver()}
	d.OnDial(func(ap netip.AddrPort) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.dialled = append(m.dialled, ap.Addr().Unmap())
	})
	dir := t.TempDir()
	for form, g := range map[string]gatetest.Gate{"CONNECT": egress.New(egress.Options{Dialer: d}), "SOCKS": socks.New(socks.Options{Dialer: d})} {
		m.paths[form] = dir + "/" + form
		gatetest.StartAt(t, g, gatetest.Listen(t, m.paths[form]))
	}
	m.paths["absolute"] = m.paths["CONNECT"]
	return m
}

func (m *matrix) lookup(name string, _ bool) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name == "cname.example" {
		return "CNAME far.alias.example"
	}
	return m.zone
}

// dials gives what was dialled since the last call.
func (m *matrix) dials() []netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.dialled
	m.dialled = nil
	return out
}

// ask sends one request and gives the start of the answer.
func (m *matrix) ask(form string, s spelling, a netip.Addr) string {
	m.t.Helper()
	m.mu.Lock()
	m.zone = s.zone
	m.mu.Unlock()
	c, err := net.Dial("unix", m.paths[form])
	if err != nil {
		m.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(gatetest.Patience))
	size := len("HTTP/1.1 403")
	request := "CONNECT " + s.host + ":80 HTTP/1.1\r\n\r\n"
	switch form {
	case "absolute":
		request = "GET http://" + s.host + "/ HTTP/1.1\r\nHost: " + s.host + "\r\n\r\n"
	case "SOCKS":
		request, size = "\x05\x01\x00"+socksRequest(s, a), 4
	}
	gatetest.Send(m.t, c, request)
	answer := make([]byte, size)
	n, _ := io.ReadFull(c, answer)
	return string(answer[:n])
}

// socksRequest puts literals into an address field, the first way, or into a
// name; brackets are no part of SOCKS.
func socksRequest(s spelling, a netip.Addr) string {
	host, raw := s.host, a.AsSlice()
	switch {
	case s.malformed || s.zone != "":
	case host == a.String() || strings.HasSuffix(host, "::ffff:"+a.String()+"]") || host == "["+a.String()+"]":
		if strings.HasPrefix(host, "[::ffff:") {
			b := a.As16()
			raw = b[:]
		}
		return string([]byte{5, 1, 0, byte(map[int]int{4: 1, 16: 4}[len(raw)])}) + string(raw) + "\x00\x50"
	default:
		host = strings.Trim(host, "[]") // as Chrome writes it
	}
	return "\x05\x01\x00\x03" + string([]byte{byte(len(host))}) + host + "\x00\x50"
}

// no is the start of a refusal by policy, malformedAnswer that of the grammar.
var (
	no              = map[string]string{"CONNECT": "HTTP/1.1 403", "absolute": "HTTP/1.1 403", "SOCKS": "\x05\x00\x05\x02"}
	malformedAnswer = map[string]string{"CONNECT": "HTTP/1.1 400", "absolute": "HTTP/1.1 400", "SOCKS": "\x05\x00\x05\x01"}
	yes             = map[string]string{"CONNECT": "HTTP/1.1 200", "absolute": "HTTP/1.1 200", "SOCKS": "\x05\x00\x05\x00"}
)

// Each prefix at five points, in every spelling, through every form of
// request. What is refused is neither dialled nor seen on any link, and the
// public address beside it, in the same spelling, is reached.
func TestPrefixMatrix(t *testing.T) {
	if !gatetest.Inside(t) {
		return
	}
	world := gatetest.Serve(gatetest.World(t), func(_ *gatetest.Origin, c net.Conn, _ *bufio.Reader) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	m := newMatrix(t)
	wire := gatetest.Tap(t)
	type one struct {
		form string
		s    spelling
		a    netip.Addr
	}
	var public []one
	seen, refusals := map[netip.Addr]bool{}, 0
	opens := gatetest.ActiveOpens(t)
	for _, row := range addrpolicy.Rows() {
		for _, a := range points(row.Prefix) {
			if seen[a] {
				continue
			}
			seen[a] = true
			for _, s := range spellings(a) {
				for form := range m.paths {
					want := no[form]
					switch {
					case s.malformed:
						want = malformedAnswer[form]
					case !refused(a), s.mixed && addrpolicy.Classify(a).Class.Skippable():
						public = append(public, one{form, s, a})
						continue
					}
					refusals++
					if got := m.ask(form, s, a); got != want {
						t.Errorf("%s %v as %s (%s): %q, want %q", form, a, s.host, s.zone, got, want)
					}
				}
			}
		}
	}
	if d, n, p := m.dials(), gatetest.ActiveOpens(t)-opens, wire.Packets(t); len(d) != 0 || n != 0 || p != 0 || world.Contacts() != 0 {
		t.Errorf("of %d refused requests: dialled %v, %d connections begun, %d packets, %d contacts", refusals, d, n, p, world.Contacts())
	}
	for _, o := range public {
		got := m.ask(o.form, o.s, o.a)
		d := m.dials()
		ok := len(d) >= 1 && got == yes[o.form]
		for _, a := range d { // a public one in a mixed answer may be raced
			ok = ok && (a == o.a && !refused(a) || o.s.mixed && (a.String() == gatetest.Far4 || a.String() == gatetest.Far6))
		}
		if !ok {
			t.Errorf("%s %v as %s (%s): %q, dialled %v", o.form, o.a, o.s.host, o.s.zone, got, d)
		}
	}
	if n, p := gatetest.ActiveOpens(t)-opens, wire.Packets(t); n < len(public) || p < 3*n || world.Contacts() < int64(len(public)) {
		t.Errorf("%d public requests: %d connections begun, %d packets, %d contacts", len(public), n, p, world.Contacts())
	}
	t.Logf("%d addresses, %d requests refused, %d let through", len(seen), refusals, len(public))
}
