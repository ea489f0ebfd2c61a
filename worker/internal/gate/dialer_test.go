package gate

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/addrpolicy"
	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

func host(t *testing.T, s string) hostport.Host {
	t.Helper()
	h, err := hostport.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestExceptionLiftsTheAddressPolicyOnly(t *testing.T) {
	ln := gatetest.Listen(t, gatetest.Loopback)
	contacts := gatetest.Serve(ln, gatetest.Count)
	ap := netip.MustParseAddrPort(ln.Addr().String())
	names := &gatetest.Resolver{Names: map[string]string{"alias.example": "127.0.0.1", "mixed.example": "127.0.0.1,10.0.0.1"}}
	port := ap.String()[strings.LastIndex(ap.String(), ":"):]

	if _, r := (&Dialer{Resolver: names}).Dial(t.Context(), host(t, ap.String())); r == nil || r.Class != "loopback" {
		t.Errorf("without the exception: %v", r)
	}
	d := &Dialer{Resolver: names, Except: []netip.AddrPort{ap}}
	for _, target := range []string{ap.String(), "alias.example" + port} {
		c, r := d.Dial(t.Context(), host(t, target))
		if r != nil {
			t.Fatalf("%s: %v", target, r)
		}
		c.Close()
	}
	gatetest.WaitFor(t, func() bool { return contacts.Contacts() == 2 })
	for target, class := range map[string]string{
		"localhost" + port: "name", "mixed.example" + port: "non-public", "127.0.0.1:1": "loopback", "127.0.0.2" + port: "loopback",
	} {
		if _, r := d.Dial(t.Context(), host(t, target)); r == nil || r.Class != class {
			t.Errorf("%s: %+v, want class %s", target, r, class)
		}
	}
	d.AllowHosts = []hostport.Pattern{}
	if _, r := d.Dial(t.Context(), host(t, ap.String())); r == nil || r.Class != "not-allowed" {
		t.Errorf("beside an empty allow list: %v", r)
	}
	if contacts.Contacts() != 2 {
		t.Errorf("%d contacts, want 2", contacts.Contacts())
	}
}

func TestRefusedBeforeAnyLookup(t *testing.T) {
	names := &gatetest.Resolver{Names: map[string]string{"ok.example": "10.0.0.1"}}
	pattern, _ := hostport.ParsePattern("*.allowed.example:443")
	for _, c := range []struct {
		d      Dialer
		target string
		class  string
	}{
		{Dialer{}, "ok.example:25", "port"},
		{Dialer{RefusePorts: []uint16{80}}, "ok.example:80", "port"},
		{Dialer{AllowPorts: []uint16{443}}, "ok.example:80", "port"},
		{Dialer{AllowHosts: []hostport.Pattern{pattern}}, "ok.example:443", "not-allowed"},
		{Dialer{AllowHosts: []hostport.Pattern{pattern}}, "a.allowed.example:80", "not-allowed"},
		{Dialer{AllowHosts: []hostport.Pattern{pattern}}, "allowed.example:443", "not-allowed"},
		{Dialer{}, "localhost:80", "name"},
		{Dialer{}, "metadata.google.internal:80", "name"},
		{Dialer{}, "intranet:80", "name"},
	} {
		c.d.Resolver = names
		if _, r := c.d.Dial(t.Context(), host(t, c.target)); r == nil || r.Class != c.class || r.Status != 403 {
			t.Errorf("%s: %+v, want class %s", c.target, r, c.class)
		}
	}
	if n := names.Total(); n != 0 {
		t.Errorf("%d queries left", n)
	}
	// The control: this one does reach the resolver, once.
	if _, r := (&Dialer{Resolver: names}).Dial(t.Context(), host(t, "ok.example:80")); r == nil || r.Class != "non-public" {
		t.Errorf("ok.example: %v", r)
	}
	if n := names.Queries("ok.example"); n != 1 {
		t.Errorf("%d queries", n)
	}
}

// What a name resolves to must not be told to the box.
func TestNoResolverOracle(t *testing.T) {
	names := &gatetest.Resolver{Names: map[string]string{
		"a.example": "10.1.2.3", "b.example": "127.0.0.1", "c.example": "169.254.169.254", "d.example": "fdaa::3",
		"e.example": "8.8.8.8,10.1.2.3", "f.example": "64:ff9b::a01:203", "g.example": "::ffff:10.1.2.3",
	}}
	var first string
	for name, addrs := range names.Names {
		_, r := (&Dialer{Resolver: names}).Dial(t.Context(), host(t, name+":80"))
		if r == nil {
			t.Fatalf("%s was dialled", name)
		}
		text := string(r.Bytes("CONNECT HOST"))
		if first == "" {
			first = text
		}
		if text != first {
			t.Errorf("%s (%s) is answered differently:\n%s%s", name, addrs, text, first)
		}
		for a := range strings.SplitSeq(addrs, ",") {
			if strings.Contains(text, a) {
				t.Errorf("the answer holds %s", a)
			}
		}
	}
	if _, r := (&Dialer{Resolver: names}).Dial(t.Context(), host(t, "none.example:80")); r == nil || r.Status != 502 || r.Class != "dns" {
		t.Errorf("a missing name: %+v", r)
	}
}

func TestEveryTableRowIsRefusedAsLiteralAndAsAnswer(t *testing.T) {
	names := &gatetest.Resolver{Names: map[string]string{}}
	d := &Dialer{Resolver: names}
	for _, row := range addrpolicy.Rows() {
		a := row.Prefix.Addr()
		if _, r := d.Dial(t.Context(), hostport.Host{Addr: a, Port: 80}); r == nil || r.Status != 403 {
			t.Errorf("%v: %+v", a, r)
		}
		names.Names["x.example"] = a.String()
		if _, r := d.Dial(t.Context(), host(t, "x.example:80")); r == nil || r.Class != "non-public" {
			t.Errorf("a name for %v: %+v", a, r)
		}
	}
}

type slowResolver struct{}

func (slowResolver) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestLookupTimeout(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, r := (&Dialer{Resolver: slowResolver{}}).Dial(ctx, host(t, "a.example:80")); r == nil || r.Status != 504 || r.ProxyStatus != "dns_timeout" {
		t.Errorf("%+v", r)
	}
}

func TestPublicNeighbour(t *testing.T) {
	if !gatetest.Inside(t) {
		return
	}
	listenFar := gatetest.Neighbour(t)
	contacts := gatetest.Serve(listenFar("[::]:80"), gatetest.Count)
	names := &gatetest.Resolver{Names: map[string]string{
		"four.example":   gatetest.Far4,
		"six.example":    gatetest.Far6,
		"both.example":   gatetest.Far6 + "," + gatetest.Far4,
		"dns64.example":  "64:ff9b::808:404," + gatetest.Far4,
		"dead.example":   "8.8.4.200," + gatetest.Far4, // nobody answers ARP for .200
		"no6.example":    "2700::1," + gatetest.Far4,   // no route
		"rebind.example": gatetest.Far4 + ",127.0.0.1",
		"flip.example":   gatetest.Far4 + "|127.0.0.1",
		"near.example":   gatetest.Near4,
		"mixown.example": gatetest.Far4 + "," + gatetest.Near6,
	}}
	d := &Dialer{Resolver: names}
	want := int64(0)
	for _, target := range []string{
		gatetest.Far4 + ":80", "[" + gatetest.Far6 + "]:80", "[::ffff:" + gatetest.Far4 + "]:80",
		"four.example:80", "six.example:80", "both.example:80", "dns64.example:80", "dead.example:80", "no6.example:80", "flip.example:80",
	} {
		c, r := d.Dial(t.Context(), host(t, target))
		if r != nil {
			t.Errorf("%s: %+v", target, r)
			continue
		}
		if ClassOf(c) != "public" {
			t.Errorf("%s: class %s", target, ClassOf(c))
		}
		c.Close()
		want++
	}
	gatetest.WaitFor(t, func() bool { return contacts.Contacts() >= want })
	for target, class := range map[string]string{
		"rebind.example:80": "non-public", "near.example:80": "non-public", "mixown.example:80": "non-public", "flip.example:80": "non-public",
		gatetest.Far4 + ":81": "connection-refused", "2700.example:80": "dns", "[2700::1]:80": "unreachable",
	} {
		if _, r := d.Dial(t.Context(), host(t, target)); r == nil || r.Class != class {
			t.Errorf("%s: %+v, want class %s", target, r, class)
		}
	}
	if contacts.Contacts() != want {
		t.Errorf("%d contacts, want %d", contacts.Contacts(), want)
	}
	for name, n := range map[string]int{"dead.example": 1, "flip.example": 2, "rebind.example": 1} {
		if q := names.Queries(name); q != n {
			t.Errorf("%s was looked up %d times, want %d", name, q, n)
		}
	}
}

func TestOwnAddresses(t *testing.T) {
	if !gatetest.Inside(t) {
		return
	}
	gatetest.Run(t, "ip", "link", "add", "own", "type", "veth", "peer", "name", "end")
	gatetest.Run(t, "ip", "link", "set", "end", "up")
	gatetest.Run(t, "ip", "addr", "add", "8.8.8.1/24", "dev", "own")
	gatetest.Up(t, "own")
	contacts := gatetest.Serve(gatetest.Listen(t, "[::]:80"), gatetest.Count)
	d := &Dialer{}
	refused := func(target string) {
		t.Helper()
		if _, r := d.Dial(t.Context(), host(t, target)); r == nil || r.Class != "own" {
			t.Errorf("%s: %+v, want class own", target, r)
		}
	}
	refused("8.8.8.1:80")
	refused("8.8.8.255:80") // the network's broadcast address
	// Addresses that come later are known at once: nothing is cached.
	gatetest.Run(t, "ip", "addr", "add", "8.8.9.1/32", "dev", "own")
	gatetest.Run(t, "ip", "addr", "add", "2600:1::1/128", "dev", "own", "nodad")
	// The kernel makes an IPv6 address's local route in a work queue, some
	// moments later on a busy machine; until then there is no route at all.
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if kind, err := routeTo(netip.MustParseAddr("2600:1::1")); err == nil && kind != unicast {
			break
		}
	}
	gatetest.Run(t, "ip", "route", "add", "local", "8.9.0.0/16", "dev", "lo")
	gatetest.Run(t, "ip", "-6", "route", "add", "local", "2600:2::/64", "dev", "lo")
	for _, target := range []string{"8.8.9.1:80", "[2600:1::1]:80", "8.9.3.4:80", "[2600:2::77]:80"} {
		refused(target)
	}
	if n := contacts.Contacts(); n != 0 {
		t.Errorf("%d connections reached our own listener", n)
	}
	// The control: each of them would have been reached.
	for _, target := range []string{"8.8.8.1:80", "8.8.9.1:80", "[2600:1::1]:80", "8.9.3.4:80", "[2600:2::77]:80"} {
		c, err := net.Dial("tcp", target)
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		c.Close()
	}
	gatetest.Run(t, "ip", "route", "add", "unreachable", "8.10.0.0/16")
	if _, r := d.Dial(t.Context(), host(t, "8.10.0.1:80")); r == nil || r.Class != "unreachable" {
		t.Errorf("an unreachable route: %+v", r)
	}
}

func FuzzRouteAnswer(f *testing.F) {
	f.Add(make([]byte, 16))
	f.Add(append(append(make([]byte, 4), 24, 0), make([]byte, 40)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if kind, err := routeAnswer(b); err == nil && (len(b) < 28 || kind != routeKind(b[23])) {
			t.Errorf("%x: %d", b, kind)
		}
	})
}

// Whoever rules the machine's network can send to a netlink socket whose id it
// guesses: what it says there must not be taken for the kernel's answer.
func TestOnlyTheKernelAnswers(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "only root can send to another's netlink socket")
	}
	asked, err := questioner()
	if err != nil {
		t.Fatal(err)
	}
	loose, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	liar, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range []int{asked, loose, liar} {
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); fd != asked && err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		fd    int
		takes bool
	}{{"control: a loose socket", loose, true}, {"ours", asked, false}} {
		name, err := unix.Getsockname(c.fd)
		if err != nil {
			t.Fatal(err)
		}
		lie := make([]byte, 64)
		binary.NativeEndian.PutUint32(lie, 64)
		sent := unix.Sendto(liar, lie, 0, name)
		n, _ := unix.Read(c.fd, make([]byte, 128))
		if got := n == len(lie); got != c.takes || c.takes != (sent == nil) {
			t.Errorf("%s: %d bytes came, the sender heard %v", c.name, n, sent)
		}
	}
}

func BenchmarkRouteTo(b *testing.B) {
	a := netip.MustParseAddr("127.0.0.1")
	for b.Loop() {
		if _, err := routeTo(a); err != nil {
			b.Fatal(err)
		}
	}
}
