package addrpolicy

import (
	"encoding/binary"
	"net/netip"
)

// Verdict is the answer to "may a box reach this address?".
type Verdict struct {
	Class   Class
	Reason  string // at most MaxReason bytes; names no address
	Allowed bool
}

// Classify judges an address. An IPv4-mapped address is judged as IPv4.
func Classify(a netip.Addr) Verdict {
	r := find(a)
	return Verdict{r.Class, r.Reason, r.Class == Public}
}

// Skippable tells whether a DNS answer of this class may be passed over when
// the same name also has a public address. DNS64 adds a translation address
// to every name; any other refused answer beside a public one is the mark of
// DNS rebinding, and the whole name is refused for it.
func (c Class) Skippable() bool { return c == Translation || c == Documentation }

func find(a netip.Addr) *Row {
	if a.Zone() != "" {
		return &zoned
	}
	a = a.Unmap()
	switch {
	case a.Is4():
		return find4(a)
	case a.Is6():
		return find6(a)
	}
	return &invalid
}

// Masks instead of netip.Prefix.Contains: 25 calls of it would take most of
// the 60 ns that one judgement may take.
type mask4 struct {
	net, mask uint32
	row       *Row
}

type mask6 struct {
	hi, lo, maskHi, maskLo uint64
	row                    *Row
}

var masks4, masks6 = compile(rows)

func compile(rows []Row) (four []mask4, six []mask6) {
	for i := range rows {
		p := rows[i].Prefix
		if p.Addr().Is4() {
			b := p.Addr().As4()
			mask := ^uint32(0) << (32 - p.Bits())
			four = append(four, mask4{binary.BigEndian.Uint32(b[:]), mask, &rows[i]})
			continue
		}
		hi, lo := halves(p.Addr())
		m := mask6{hi: hi, lo: lo, maskHi: ^uint64(0), row: &rows[i]}
		if p.Bits() <= 64 {
			m.maskHi <<= 64 - p.Bits()
		} else {
			m.maskLo = ^uint64(0) << (128 - p.Bits())
		}
		six = append(six, m)
	}
	return four, six
}

func halves(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

func find4(a netip.Addr) *Row {
	b := a.As4()
	v := binary.BigEndian.Uint32(b[:])
	for i := range masks4 {
		if m := &masks4[i]; v&m.mask == m.net {
			return m.row
		}
	}
	return &public
}

func find6(a netip.Addr) *Row {
	hi, lo := halves(a)
	for i := range masks6 {
		if m := &masks6[i]; hi&m.maskHi == m.hi && lo&m.maskLo == m.lo {
			return m.row
		}
	}
	if hi>>61 != 1 { // 2000::/3
		return &unallocated
	}
	// An ISATAP interface id holds an IPv4 address which a router of that
	// kind sends the packet on to (RFC 5214 §6.1), so that address decides.
	if id := lo >> 32; id == 0x00005efe || id == 0x02005efe {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(lo))
		return find4(netip.AddrFrom4(b))
	}
	return &public
}
