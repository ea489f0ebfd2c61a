package internet

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
)

// Domain holds every host.
const Domain = "example.com"

// Names answers on conn: every host of Domain has these addresses, and no
// other name is known. It returns when conn is closed.
func Names(conn net.PacketConn, addrs ...netip.Addr) {
	for buf := make([]byte, 1500); ; {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer := nameAnswer(buf[:n], addrs); answer != nil {
			conn.WriteTo(answer, from)
		}
	}
}

const (
	typeA, typeAAAA = 1, 28
	answered        = 0x8180 // a response, recursion asked for and to be had
	noSuchName      = 3
	dnsHeader       = 12
)

// nameAnswer makes the answer to a query with one question (RFC 1035 §4).
func nameAnswer(query []byte, addrs []netip.Addr) []byte {
	var labels []string
	at := dnsHeader
	for at < len(query) && query[at] != 0 {
		end := at + 1 + int(query[at])
		if end >= len(query) {
			return nil
		}
		labels = append(labels, string(query[at+1:end]))
		at = end
	}
	if len(labels) == 0 || at+5 > len(query) {
		return nil
	}
	kind := binary.BigEndian.Uint16(query[at+1:])
	out := append([]byte{}, query[:at+5]...)
	flags, count := uint16(answered), uint16(0)
	if !strings.HasSuffix(strings.ToLower(strings.Join(labels, ".")), "."+Domain) {
		flags |= noSuchName
		addrs = nil
	}
	for _, a := range addrs {
		if (kind == typeA && a.Is4()) || (kind == typeAAAA && a.Is6()) {
			out = append(out, 0xc0, dnsHeader, 0, byte(kind), 0, 1, 0, 0, 0, 60, 0, byte(a.BitLen()/8))
			out = append(out, a.AsSlice()...)
			count++
		}
	}
	for i, word := range []uint16{flags, 1, count, 0, 0} {
		binary.BigEndian.PutUint16(out[2+2*i:], word)
	}
	return out
}
