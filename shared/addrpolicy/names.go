package addrpolicy

import "strings"

// NameRow is one kind of refused name. Exactly one of Suffix and First is
// set: Suffix covers the name itself and everything below it, First is the
// leftmost label.
type NameRow struct {
	Suffix string
	First  string
	Reason string // at most MaxReason bytes
}

// names is what no DNS query is ever sent for: the query itself would tell an
// internal resolver, or the box, something. The address check stays the
// authority; this table only decides earlier. Existing and missing names of a
// kind get the same answer.
var names = []NameRow{
	{Suffix: "metadata.google.internal", Reason: "cloud metadata name"},
	{Suffix: "metadata.goog", Reason: "cloud metadata name"},
	{First: "instance-data", Reason: "cloud metadata name"},
	{Suffix: "localhost", Reason: "loopback name"},
	{Suffix: "local", Reason: "name of the local network (mDNS)"},
	{Suffix: "internal", Reason: "name of a private network"},
	{Suffix: "flycast", Reason: "name of a private network (Fly)"},
	{Suffix: "home.arpa", Reason: "name of a home network (RFC 8375)"},
	{Suffix: "in-addr.arpa", Reason: "reverse lookup name"},
	{Suffix: "ip6.arpa", Reason: "reverse lookup name"},
	{Suffix: "onion", Reason: "onion name (RFC 7686)"},
	{Suffix: "invalid", Reason: "reserved name (RFC 6761)"},
	{Suffix: "test", Reason: "reserved name (RFC 6761)"},
}

const singleLabel = "name without a domain"

// RefusedName tells whether a name is refused before any lookup, and why. The
// name is lower-case, without its trailing dot.
func RefusedName(host string) (reason string, refused bool) {
	first, _, dotted := strings.Cut(host, ".")
	for _, row := range names {
		if row.Suffix != "" && within(host, row.Suffix) || row.First != "" && first == row.First {
			return row.Reason, true
		}
	}
	if !dotted {
		return singleLabel, true
	}
	return "", false
}

// NameRows gives the table of refused names. Single labels are refused too,
// by rule.
func NameRows() []NameRow { return append([]NameRow(nil), names...) }

func within(host, suffix string) bool {
	rest, ok := strings.CutSuffix(host, suffix)
	return ok && (rest == "" || rest[len(rest)-1] == '.')
}
