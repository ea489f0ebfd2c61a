package addrpolicy

import "net/netip"

// Class is the kind of an address. The words are stable: they appear in
// refusals, in the log and in `botbox why host`.
type Class string

// The classes. Every one but Public is refused.
const (
	Public        Class = "public"
	Loopback      Class = "loopback"
	Private       Class = "private"
	LinkLocal     Class = "link-local"
	Metadata      Class = "metadata"
	CGNAT         Class = "cgnat"
	Multicast     Class = "multicast"
	Documentation Class = "documentation"
	Translation   Class = "translation"
	Reserved      Class = "reserved"
	Unallocated   Class = "unallocated"
	Zone          Class = "zone"
	Invalid       Class = "invalid"
)

// MaxReason is the most bytes that a row's reason has: it rides in the status
// line of a refusal, where long texts are cut by clients.
const MaxReason = 60

// Row is one refused prefix. The reason names no address, for it is shown to
// the box.
type Row struct {
	Prefix netip.Prefix
	Class  Class
	Reason string
}

func row(prefix string, class Class, reason string) Row {
	return Row{netip.MustParsePrefix(prefix), class, reason}
}

// rows is ordered: the first row that covers an address gives its class, so a
// narrow prefix stands before the wide one that holds it. ::ffff:0:0/96 needs
// no row of its own, because a mapped address is judged as IPv4.
var rows = []Row{
	row("169.254.169.254/32", Metadata, "cloud metadata service"),
	row("169.254.170.2/32", Metadata, "cloud metadata service (ECS task credentials)"),
	row("169.254.170.23/32", Metadata, "cloud metadata service (EKS pod identity)"),
	row("100.100.100.200/32", Metadata, "cloud metadata service (Alibaba)"),
	row("192.0.0.192/32", Metadata, "cloud metadata service (Oracle)"),
	// In no registry: it looks like any public address.
	row("168.63.129.16/32", Metadata, "cloud metadata service (Azure WireServer)"),

	row("0.0.0.0/8", Loopback, "this network, which Linux connects to loopback"),
	row("127.0.0.0/8", Loopback, "loopback address"),
	row("10.0.0.0/8", Private, "private network (RFC 1918)"),
	row("172.16.0.0/12", Private, "private network (RFC 1918)"),
	row("192.168.0.0/16", Private, "private network (RFC 1918)"),
	row("100.64.0.0/10", CGNAT, "shared address space (RFC 6598)"),
	row("169.254.0.0/16", LinkLocal, "link-local address"),
	row("192.0.0.0/24", Reserved, "IETF protocol assignments (RFC 6890)"),
	row("192.0.2.0/24", Documentation, "documentation address (RFC 5737)"),
	row("198.51.100.0/24", Documentation, "documentation address (RFC 5737)"),
	row("203.0.113.0/24", Documentation, "documentation address (RFC 5737)"),
	row("192.31.196.0/24", Reserved, "AS112 redirection (RFC 7535)"),
	row("192.175.48.0/24", Reserved, "AS112 service (RFC 7534)"),
	row("192.52.193.0/24", Translation, "AMT relay (RFC 7450)"),
	row("192.88.99.0/24", Translation, "6to4 relay (RFC 7526)"),
	row("198.18.0.0/15", Reserved, "benchmarking network (RFC 2544)"),
	row("224.0.0.0/4", Multicast, "multicast address"),
	row("255.255.255.255/32", Multicast, "broadcast address"),
	row("240.0.0.0/4", Reserved, "reserved address (RFC 1112)"),

	row("fd00:ec2::/32", Metadata, "cloud metadata service (AWS)"),
	row("fd20:ce::254/128", Metadata, "cloud metadata service (GCP)"),

	row("::/127", Loopback, "loopback address"),
	row("64:ff9b::/96", Translation, "NAT64 address (RFC 6052)"),
	row("64:ff9b:1::/48", Translation, "local NAT64 address (RFC 8215)"),
	row("::/8", Reserved, "address with an embedded IPv4 address"),
	row("100::/64", Reserved, "discard-only address (RFC 6666)"),
	row("100:0:0:1::/64", Reserved, "dummy address (RFC 9780)"),
	row("2001::/32", Translation, "Teredo address (RFC 4380)"),
	row("2001::/23", Reserved, "IETF protocol assignments (RFC 2928)"),
	row("2001:db8::/32", Documentation, "documentation address (RFC 3849)"),
	row("3fff::/20", Documentation, "documentation address (RFC 9637)"),
	row("2002::/16", Translation, "6to4 address (RFC 3056)"),
	row("2620:4f:8000::/48", Reserved, "AS112 service (RFC 7534)"),
	row("5f00::/16", Reserved, "segment routing identifier (RFC 9602)"),
	row("fdaa::/16", Private, "private network (Fly 6PN)"),
	row("fc00::/7", Private, "private network (RFC 4193)"),
	row("fe80::/10", LinkLocal, "link-local address"),
	// Between fc00::/7 and fe80::/10, and forgotten by most lists.
	row("fec0::/10", Private, "site-local address (RFC 3879)"),
	row("ff00::/8", Multicast, "multicast address"),
}

// The answers that no prefix gives.
var (
	public      = Row{Class: Public, Reason: "public address"}
	unallocated = Row{Class: Unallocated, Reason: "unallocated address (outside 2000::/3)"}
	zoned       = Row{Class: Zone, Reason: "address with a zone"}
	invalid     = Row{Class: Invalid, Reason: "not an address"}
)

// Rows gives the table of refused prefixes in the order of judgement.
func Rows() []Row { return append([]Row(nil), rows...) }
