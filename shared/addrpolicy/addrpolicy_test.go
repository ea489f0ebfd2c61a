package addrpolicy

import (
	"net/netip"
	"testing"
)

// first, middle and last address of every prefix, plain and IPv4-mapped.
func TestEveryRowCoversItsPrefix(t *testing.T) {
	for _, r := range rows {
		first := r.Prefix.Addr()
		if r.Prefix != r.Prefix.Masked() {
			t.Errorf("%v has bits beyond its mask", r.Prefix)
		}
		if len(r.Reason) == 0 || len(r.Reason) > MaxReason {
			t.Errorf("%v: reason has %d bytes", r.Prefix, len(r.Reason))
		}
		for _, a := range []netip.Addr{first, last(r.Prefix), middle(r.Prefix)} {
			if v := Classify(a); v.Allowed {
				t.Errorf("%v (of %v) is allowed", a, r.Prefix)
			}
			if a.Is4() {
				if v := Classify(netip.AddrFrom16(a.As16())); v.Allowed {
					t.Errorf("mapped %v is allowed", a)
				}
			}
		}
		if v := Classify(first); v.Class != r.Class && !overlaid(r, first) {
			t.Errorf("%v: class %q, want %q", first, v.Class, r.Class)
		}
	}
}

// overlaid tells whether a narrower row stands before r for this address.
func overlaid(r Row, a netip.Addr) bool {
	for _, other := range rows {
		if other == r {
			return false
		}
		if other.Prefix.Contains(a) && other.Prefix.Bits() > r.Prefix.Bits() {
			return true
		}
	}
	return false
}

func TestNoRowIsShadowed(t *testing.T) {
	for i, r := range rows {
		for _, earlier := range rows[:i] {
			if earlier.Prefix.Overlaps(r.Prefix) && earlier.Prefix.Bits() <= r.Prefix.Bits() {
				t.Errorf("%v never decides: %v stands before it", r.Prefix, earlier.Prefix)
			}
		}
	}
}

// One before and one after a prefix is public unless another row, or the
// default, covers it: the table refuses no more than it says.
func TestNeighboursOfEveryRow(t *testing.T) {
	for _, r := range rows {
		for _, a := range []netip.Addr{r.Prefix.Addr().Prev(), last(r.Prefix).Next()} {
			if !a.IsValid() {
				continue
			}
			want := a.Is4() || netip.MustParsePrefix("2000::/3").Contains(a)
			for _, other := range rows {
				want = want && !other.Prefix.Contains(a)
			}
			if got := Classify(a).Allowed; got != want {
				t.Errorf("%v beside %v: allowed %v, want %v", a, r.Prefix, got, want)
			}
		}
	}
}

func TestClassify(t *testing.T) {
	for text, want := range map[string]Class{
		"1.1.1.1": Public, "8.8.8.8": Public, "2606:4700::1111": Public, "::ffff:8.8.8.8": Public,
		"2a00:1450:4001:81b::200e": Public, "3ffe::1": Public, "172.32.0.1": Public, "223.255.255.255": Public,

		"0.0.0.0": Loopback, "0.1.2.3": Loopback, "127.0.0.1": Loopback, "127.255.255.254": Loopback,
		"::": Loopback, "::1": Loopback, "::ffff:127.0.0.1": Loopback,
		"::7f00:1": Reserved, "::a9fe:a9fe": Reserved, "::ffff:0:7f00:1": Reserved, "::5efe:7f00:1": Reserved,
		"10.0.0.1": Private, "172.19.0.3": Private, "192.168.1.1": Private,
		"fd00::1": Private, "fdaa::3": Private, "fd7a:115c:a1e0::1": Private, "fec0::1": Private,
		"100.64.0.1": CGNAT, "100.100.100.100": CGNAT, "100.100.100.200": Metadata,
		"169.254.169.254": Metadata, "::ffff:169.254.169.254": Metadata, "169.254.170.2": Metadata,
		"168.63.129.16": Metadata, "192.0.0.192": Metadata, "fd00:ec2::254": Metadata, "fd20:ce::254": Metadata,
		"169.254.169.253": LinkLocal, "fe80::1": LinkLocal,
		"224.0.0.1": Multicast, "255.255.255.255": Multicast, "ff02::1": Multicast, "ff0e::1": Multicast,
		"240.0.0.1": Reserved, "192.0.0.9": Reserved, "198.18.0.1": Reserved, "198.19.255.255": Reserved,
		"192.0.2.1": Documentation, "2001:db8::1": Documentation, "3fff::1": Documentation,
		"192.88.99.1": Translation, "64:ff9b::7f00:1": Translation, "64:ff9b::808:808": Translation,
		"64:ff9b:1::a9fe:a9fe": Translation, "2001::1": Translation, "2002:7f00:1::1": Translation,
		"2001:2::1": Reserved, "2001:20::1": Reserved, "100::1": Reserved, "5f00::1": Reserved,
		"4000::1": Unallocated, "6000::1": Unallocated, "e000::1": Unallocated, "64:ff9b:2::1": Reserved,
		"fe80::1%eth0": Zone, "2606:4700::1111%eth0": Zone,
		"2600:1f00::5efe:a9fe:a9fe": Metadata, "2600:1f00::200:5efe:7f00:1": Loopback,
		"2600:1f00::5efe:808:808": Public,
	} {
		v := Classify(netip.MustParseAddr(text))
		if v.Class != want || v.Allowed != (want == Public) {
			t.Errorf("%s: %+v, want class %q", text, v, want)
		}
	}
	if v := Classify(netip.Addr{}); v.Allowed || v.Class != Invalid {
		t.Errorf("zero address: %+v", v)
	}
}

func TestSkippable(t *testing.T) {
	for _, c := range []Class{Public, Loopback, Private, LinkLocal, Metadata, CGNAT, Multicast, Reserved, Unallocated, Zone} {
		if c.Skippable() {
			t.Errorf("%s may be skipped", c)
		}
	}
	if !Translation.Skippable() || !Documentation.Skippable() {
		t.Error("DNS64 answers must be skippable")
	}
}

func TestRefusedName(t *testing.T) {
	for _, name := range []string{
		"localhost", "a.localhost", "printer.local", "db.internal", "metadata.google.internal", "_api.internal",
		"app.flycast", "router.home.arpa", "1.0.0.127.in-addr.arpa", "x.ip6.arpa", "a.onion", "a.invalid", "a.test",
		"metadata.goog", "instance-data.ec2.internal", "instance-data.example.com", "metadata", "fly-local-6pn",
	} {
		if reason, refused := RefusedName(name); !refused || reason == "" || len(reason) > MaxReason {
			t.Errorf("%s: %q, %v", name, reason, refused)
		}
	}
	for _, name := range []string{"example.com", "notlocalhost.com", "internal.example.com", "mylocal.org", "attest.dev", "xlocal.x"} {
		if reason, refused := RefusedName(name); refused {
			t.Errorf("%s refused: %s", name, reason)
		}
	}
}

func TestListsAreCopies(t *testing.T) {
	Rows()[0].Class = Public
	NameRows()[0].Reason = ""
	if rows[0].Class == Public || names[0].Reason == "" {
		t.Error("a caller can change the policy")
	}
}

var probes = []netip.Addr{
	netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("240.0.0.1"),
	netip.MustParseAddr("2606:4700::1111"), netip.MustParseAddr("ff0e::1"),
}

func TestNoAllocation(t *testing.T) {
	for _, a := range probes {
		if n := testing.AllocsPerRun(100, func() { sink = Classify(a) }); n != 0 {
			t.Errorf("%v: %v allocations", a, n)
		}
	}
}

var sink Verdict

// The promise is 60 ns for each.
func BenchmarkClassify(b *testing.B) {
	for _, a := range probes {
		b.Run(a.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = Classify(a)
			}
		})
	}
}

func FuzzClassify(f *testing.F) {
	for _, a := range probes {
		f.Add(a.AsSlice())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		v := Classify(a)
		if v.Allowed && (!ok || covered(a.Unmap())) {
			t.Errorf("%v allowed although a row covers it", a)
		}
	})
}

// covered is the slow and plain reading of the table.
func covered(a netip.Addr) bool {
	for _, r := range rows {
		if r.Prefix.Contains(a) {
			return true
		}
	}
	return a.Is6() && !netip.MustParsePrefix("2000::/3").Contains(a)
}

func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func middle(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	if i := p.Bits(); i < len(b)*8 {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
