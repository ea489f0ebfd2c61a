package gatetest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
)

// Zone answers a name server's queries: addresses, comma separated, or "CNAME "
// and another name; "" is a name that does not exist. It is asked once for
// each query, so the A and the AAAA of one lookup may differ.
type Zone func(name string, ipv6 bool) string

// Resolver is Go's own resolver in front of the zone. Each query and answer is
// a real message with TTL 0; only the connection is a pipe, so no packet is
// sent.
func (z Zone) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			z.serve(server)
		}()
		return client, nil
	}}
}

// serve answers queries as a name server does over a stream.
func (z Zone) serve(c net.Conn) {
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		answer := z.answer(query)
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

const (
	typeA     = 1
	typeCNAME = 5
	typeAAAA  = 28
)

// answer is RFC 1035 §4.1 for the queries that Go's resolver sends.
func (z Zone) answer(query []byte) []byte {
	name, end := "", 12
	for n := int(query[end]); n != 0; n = int(query[end]) {
		name += string(query[end+1:end+1+n]) + "."
		end += 1 + n
	}
	end += 5
	kind := binary.BigEndian.Uint16(query[end-4:])
	records, exists := z.records(strings.TrimSuffix(name, "."), kind)
	flags := uint16(0x8180) // an answer, recursion
	if !exists {
		flags |= 3
	}
	b := append([]byte{}, query[:2]...)
	for _, n := range []uint16{flags, 1, uint16(len(records)), 0, 0} {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	b = append(b, query[12:end]...)
	for _, r := range records {
		b = append(b, r...)
	}
	return b
}

func (z Zone) records(name string, kind uint16) (records [][]byte, exists bool) {
	text := z(name, kind == typeAAAA)
	if text == "" {
		return nil, false
	}
	if other, alias := strings.CutPrefix(text, "CNAME "); alias {
		more, exists := z.records(other, kind)
		return append([][]byte{record(name, typeCNAME, encode(other))}, more...), exists
	}
	for a := range strings.SplitSeq(text, ",") {
		if a := netip.MustParseAddr(a); a.Is6() == (kind == typeAAAA) {
			records = append(records, record(name, kind, a.AsSlice()))
		}
	}
	return records, true
}

func record(name string, kind uint16, data []byte) []byte {
	b := binary.BigEndian.AppendUint16(encode(name), kind)
	b = append(b, 0, 1, 0, 0, 0, 0) // the Internet, TTL 0
	b = binary.BigEndian.AppendUint16(b, uint16(len(data)))
	return append(b, data...)
}

func encode(name string) (b []byte) {
	for label := range strings.SplitSeq(name, ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0)
}
