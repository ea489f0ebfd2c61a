package gate

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/addrpolicy"
	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

func list(t *testing.T, words ...string) []hostport.Pattern {
	t.Helper()
	all := []hostport.Pattern{}
	for _, word := range words {
		p, err := hostport.ParsePattern(word)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// Each list, alone and against the others: who is refused, with what class, and
// whose list the answer names.
func TestLists(t *testing.T) {
	for _, c := range []struct {
		what   string
		d      Dialer
		target string
		class  string // of the refusal; dns is what a name that gets through comes to here
		says   string
	}{
		{"no list", Dialer{}, "a.example:443", "dns", ""},
		{"no list, mail", Dialer{}, "a.example:25", "port", "closed to boxes"},
		{"mail that the operator opened", Dialer{RefusePorts: []uint16{}, AllowPorts: []uint16{25}}, "a.example:25", "dns", ""},
		{"the machine's ports", Dialer{AllowPorts: []uint16{443}}, "a.example:80", "port", "this machine's list"},
		{"the box's ports", Dialer{BoxPorts: []uint16{443}}, "a.example:80", "port", "this box's list"},
		{"the box's ports are not the machine's", Dialer{AllowPorts: []uint16{443}, BoxPorts: []uint16{80}}, "a.example:80", "port", "this machine's list"},
		{"in both", Dialer{AllowPorts: []uint16{80, 443}, BoxPorts: []uint16{80}}, "a.example:80", "dns", ""},
		{"no port at all", Dialer{BoxPorts: []uint16{}}, "a.example:443", "port", "this box's list"},
		{"no host at all, the machine's", Dialer{AllowHosts: list(t)}, "a.example:443", "not-allowed", "this machine's allow list"},
		{"no host at all, the box's", Dialer{BoxHosts: list(t)}, "a.example:443", "not-allowed", "this box's allow list"},
		{"the machine's list", Dialer{AllowHosts: list(t, "b.example")}, "a.example:443", "not-allowed", "this machine's allow list"},
		{"the box's list cannot widen it", Dialer{AllowHosts: list(t, "b.example"), BoxHosts: list(t, "a.example")}, "a.example:443", "not-allowed", "this machine's allow list"},
		{"the box's list narrows it", Dialer{AllowHosts: list(t, "*.example"), BoxHosts: list(t, "b.example")}, "a.example:443", "not-allowed", "this box's allow list"},
		{"on both", Dialer{AllowHosts: list(t, "*.example"), BoxHosts: list(t, "a.example:443")}, "a.example:443", "dns", ""},
		{"below is not itself", Dialer{BoxHosts: list(t, "*.a.example")}, "a.example:443", "not-allowed", "this box's allow list"},
		{"denied", Dialer{BoxDeny: list(t, "a.example")}, "a.example:443", "denied", "this box's deny list"},
		{"denied although allowed", Dialer{BoxHosts: list(t, "a.example:443"), BoxDeny: list(t, "*.example")}, "a.example:443", "denied", "this box's deny list"},
		{"denied on another port", Dialer{BoxDeny: list(t, "a.example:80")}, "a.example:443", "dns", ""},
		{"a denied spelling", Dialer{BoxDeny: list(t, "A.Example.")}, "a.EXAMPLE.:443", "denied", "this box's deny list"},
		{"denied by address", Dialer{BoxDeny: list(t, "8.8.8.8")}, "[::ffff:8.8.8.8]:443", "denied", "this box's deny list"},
		{"a list does not lift a refused name", Dialer{BoxHosts: list(t, "db.internal")}, "db.internal:443", "name", "private network"},
		{"a list does not lift an address", Dialer{BoxHosts: list(t, "10.0.0.1")}, "10.0.0.1:443", "private", ""},
		{"an exception is not on the list", Dialer{BoxHosts: list(t, "a.example"), Except: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}}, "127.0.0.1:1", "not-allowed", "this box's allow list"},
		{"an exception can be denied", Dialer{BoxDeny: list(t, "127.0.0.1"), Except: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}}, "127.0.0.1:1", "denied", "this box's deny list"},
	} {
		names := &gatetest.Resolver{}
		c.d.Resolver = names
		h := host(t, c.target)
		_, r := c.d.Dial(t.Context(), h)
		if r == nil || r.Class != c.class || !strings.Contains(r.Reason, c.says) {
			t.Errorf("%s: %+v, want class %s and %q", c.what, r, c.class, c.says)
			continue
		}
		if n := names.Total(); (n > 0) != (c.class == "dns") {
			t.Errorf("%s: %d queries", c.what, n)
		}
		if len(r.Reason) > addrpolicy.MaxReason || r.Hint == "" {
			t.Errorf("%s: the reason has %d bytes, the hint is %q", c.what, len(r.Reason), r.Hint)
		}
		// What is explained is what happens.
		o := c.d.Judge(h)
		want := Opinion{Host: h.String(), Verdict: Refused, Class: r.Class, Why: r.Reason, Hint: r.Hint}
		if c.class == "dns" {
			want.Verdict, want.Class, want.Why, want.Hint = ByName, "", o.Why, ""
		}
		if o != want {
			t.Errorf("%s: judged %+v, want %+v", c.what, o, want)
		}
		if after := names.Total(); c.class == "dns" && after != 1 {
			t.Errorf("%s: the opinion looked the name up", c.what)
		}
	}
}

// A denied address is denied behind every name, and the answer says by whom:
// it is no secret of the machine's.
func TestDenyHoldsForWhatANameResolvesTo(t *testing.T) {
	names := &gatetest.Resolver{Names: map[string]string{"a.example": "8.8.8.8", "both.example": "8.8.4.4,8.8.8.8", "mapped.example": "::ffff:8.8.8.8"}}
	d := Dialer{Resolver: names, BoxDeny: list(t, "8.8.8.8:443")}
	for name := range names.Names {
		if _, r := d.Dial(t.Context(), host(t, name+":443")); r == nil || r.Class != "denied" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	d.Learn = &Lessons{}
	names.Names["own.example"] = "127.0.0.1"
	if _, r := d.Dial(t.Context(), host(t, "own.example:443")); r == nil || r.Class != "non-public" {
		t.Errorf("a learning box and an address that no list names: %+v", r)
	}
}

// Learning passes over lists and over nothing else.
func TestLearningLiftsListsOnly(t *testing.T) {
	ln := gatetest.Listen(t, gatetest.Loopback)
	gatetest.Serve(ln, gatetest.Count)
	ap := netip.MustParseAddrPort(ln.Addr().String())
	names := &gatetest.Resolver{Names: map[string]string{"b.example": ap.Addr().String(), "a.example": ap.Addr().String(), "private.example": "10.0.0.1"}}
	d := Dialer{
		Resolver: names, Except: []netip.AddrPort{ap}, Learn: &Lessons{},
		AllowHosts: list(t, "*.b.example"), BoxHosts: list(t, "b.example"), AllowPorts: []uint16{443}, BoxPorts: []uint16{}, BoxDeny: list(t, "*.example"),
	}
	port := ":" + ln.Addr().String()[strings.LastIndex(ln.Addr().String(), ":")+1:]
	reach := func(name string) {
		t.Helper()
		c, r := d.Dial(t.Context(), host(t, name+port))
		if r != nil {
			t.Fatalf("%s: %+v", name, r)
		}
		c.Close()
	}
	for _, name := range []string{"b.example", "a.example", "b.example"} {
		reach(name)
	}
	for target, class := range map[string]string{
		"a.example:25": "port", "localhost" + port: "name", "db.internal:443": "name", "private.example:443": "non-public",
		"10.0.0.1:443": "private", "169.254.169.254:80": "metadata", "127.0.0.1:1": "loopback", "missing.example:443": "dns",
	} {
		if _, r := d.Dial(t.Context(), host(t, target)); r == nil || r.Class != class {
			t.Errorf("%s: %+v, want class %s", target, r, class)
		}
	}
	if o := d.Judge(host(t, "a.example:443")); o.Verdict != ByName || !strings.Contains(o.Lifted, "this box's list of ports") {
		t.Errorf("what learning passes over is not told: %+v", o)
	}
	if o := d.Judge(host(t, "10.0.0.1:443")); o.Verdict != Refused || o.Lifted != "" {
		t.Errorf("%+v", o)
	}
	a := d.Advice()
	if a.Hosts != 2 || strings.Join(a.Allow, " ") != "a.example"+port+" b.example" || strings.Join(a.MachineAllow, " ") != "a.example"+port+" b.example"+port ||
		len(a.MachinePorts) != 1 || a.MachinePorts[0] != ap.Port() || len(a.BoxPorts) != 1 || strings.Join(a.Deny, " ") != "*.example" {
		t.Errorf("%+v", a)
	}
	// It suffices: a box of that policy reaches the same, and no more.
	strict := Dialer{
		Resolver: names, Except: d.Except, AllowHosts: list(t, a.MachineAllow...), BoxHosts: list(t, a.Allow...),
		AllowPorts: a.MachinePorts, BoxPorts: a.BoxPorts,
	}
	d = strict
	reach("a.example")
	reach("b.example")
	if _, r := strict.Dial(t.Context(), host(t, ap.String())); r == nil || r.Class != "not-allowed" {
		t.Errorf("one more than was learnt: %+v", r)
	}
	if strict.Advice() != nil {
		t.Error("a dialer that does not learn gives advice")
	}
}

func TestLessonsAreBounded(t *testing.T) {
	l := &Lessons{}
	for i := range 3 * maxLessons {
		l.reached(hostport.Host{Addr: netip.AddrFrom4([4]byte{8, byte(i >> 16), byte(i >> 8), byte(i)}), Port: 443})
	}
	a := (&Dialer{Learn: l}).Advice()
	if a.Hosts != maxLessons || a.More != 2*maxLessons || len(a.Allow) != maxLessons {
		t.Errorf("%d hosts, %d more, %d entries", a.Hosts, a.More, len(a.Allow))
	}
}

// In a namespace: the routing question is part of the opinion, and what is
// allowed is reached.
func TestOpinionOfOwnAddresses(t *testing.T) {
	if !gatetest.Inside(t) {
		return
	}
	gatetest.Serve(gatetest.Neighbour(t)("0.0.0.0:80"), gatetest.Count)
	d := &Dialer{BoxHosts: list(t, gatetest.Far4, gatetest.Near4), Except: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:80")}}
	for target, want := range map[string]string{gatetest.Far4 + ":80": "allowed public", gatetest.Near4 + ":80": "refused own", "127.0.0.1:80": "refused not-allowed"} {
		if o := d.Judge(host(t, target)); o.Verdict+" "+o.Class != want {
			t.Errorf("%s: %+v, want %s", target, o, want)
		}
	}
	c, r := d.Dial(t.Context(), host(t, gatetest.Far4+":80"))
	if r != nil {
		t.Fatalf("what is judged allowed: %+v", r)
	}
	c.Close()
	d.BoxHosts = nil
	if o := d.Judge(host(t, "127.0.0.1:80")); o.Verdict != Allowed || o.Class != "loopback" || !strings.Contains(o.Why, "OMB_EGRESS_EXCEPT") {
		t.Errorf("an exception: %+v", o)
	}
}
