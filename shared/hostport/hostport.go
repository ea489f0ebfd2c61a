package hostport

import (
	"net/netip"
	"strconv"
	"strings"
)

// Error says why an authority is malformed. The texts are constants of at
// most 60 bytes, so they can stand in a status line; none quotes the input.
type Error string

func (e Error) Error() string { return string(e) }

// The ways to be malformed.
const (
	ErrEmpty    = Error("the host is missing")
	ErrNoPort   = Error("the port is missing")
	ErrPort     = Error("the port is not a number from 1 to 65535")
	ErrBrackets = Error("IPv6 address needs brackets")
	ErrBracket  = Error("brackets may only surround an IPv6 address")
	ErrZone     = Error("an address zone or percent sign is not accepted")
	ErrUser     = Error("a user name in the address is not accepted")
	ErrByte     = Error("the host has a byte that is not accepted")
	ErrLabel    = Error("the host name has an empty or too long label")
	ErrLong     = Error("the host name is longer than 253 bytes")
	ErrNumber   = Error("not a plain dotted IPv4 address")
	ErrPattern  = Error("not a host pattern (HOST[:PORT] or *.HOST[:PORT])")
)

const (
	maxName  = 253 // RFC 1035, without the trailing dot
	maxLabel = 63
)

// Host is where to: an address or a name, never both, and a port. A name is
// lower-case ASCII without a trailing dot, and does not look like an address.
type Host struct {
	Addr netip.Addr // valid for a literal; never IPv4-mapped, never with a zone
	Name string
	Port uint16
}

// Parse reads HOST:PORT.
func Parse(authority string) (Host, error) {
	h, err := parse(authority)
	if err == nil && h.Port == 0 {
		err = ErrNoPort
	}
	if err != nil {
		return Host{}, err
	}
	return h, nil
}

// ParseDefault reads HOST[:PORT]; the port of a URL's scheme stands in for a
// missing one.
func ParseDefault(authority string, port uint16) (Host, error) {
	h, err := parse(authority)
	if err == nil && h.Port == 0 {
		h.Port = port
	}
	return h, err
}

// New makes a Host of a name or a dotted IPv4 address that came without a
// port beside it, as in a SOCKS request.
func New(name string, port uint16) (Host, error) {
	if port == 0 {
		return Host{}, ErrPort
	}
	h, err := parseName(name)
	h.Port = port
	return h, err
}

// String gives the canonical HOST:PORT.
func (h Host) String() string {
	port := strconv.Itoa(int(h.Port))
	if h.Addr.Is6() {
		return "[" + h.Addr.String() + "]:" + port
	}
	return h.Hostname() + ":" + port
}

// Hostname gives the host alone, without brackets.
func (h Host) Hostname() string {
	if h.Addr.IsValid() {
		return h.Addr.String()
	}
	return h.Name
}

// parse reads HOST[:PORT]; port 0 means that none was written.
func parse(authority string) (Host, error) {
	if strings.IndexByte(authority, '@') >= 0 {
		return Host{}, ErrUser
	}
	if strings.IndexByte(authority, '%') >= 0 {
		return Host{}, ErrZone
	}
	host, port, err := split(authority)
	if err != nil {
		return Host{}, err
	}
	var h Host
	if strings.HasPrefix(host, "[") {
		h, err = parseBracketed(host)
	} else {
		h, err = parseName(host)
	}
	if err != nil {
		return Host{}, err
	}
	h.Port = port
	return h, nil
}

func split(authority string) (host string, port uint16, err error) {
	end := strings.IndexByte(authority, ':')
	if strings.HasPrefix(authority, "[") {
		if end = strings.IndexByte(authority, ']') + 1; end == 0 {
			return "", 0, ErrBracket
		}
	} else if strings.Count(authority, ":") > 1 {
		// Real clients send this: python-socks PR#47, urllib3#1222.
		return "", 0, ErrBrackets
	} else if end < 0 {
		end = len(authority)
	}
	rest := authority[end:]
	if rest == "" {
		return authority, 0, nil
	}
	if rest[0] != ':' {
		return "", 0, ErrBracket
	}
	port, err = ParsePort(rest[1:])
	return authority[:end], port, err
}

// ParsePort is strict because strconv accepts "+80" and leading zeros, and
// tinyproxy dials 9100 for 74636.
func ParsePort(s string) (uint16, error) {
	if s == "" {
		return 0, ErrNoPort
	}
	if s[0] < '1' || s[0] > '9' {
		return 0, ErrPort
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, ErrPort
	}
	return uint16(n), nil
}

func parseBracketed(s string) (Host, error) {
	a, err := netip.ParseAddr(s[1 : len(s)-1])
	if err != nil || !a.Is6() {
		return Host{}, ErrBracket
	}
	return Host{Addr: a.Unmap()}, nil
}

// parseName reads a name or a dotted IPv4 address, with at most one trailing
// dot.
func parseName(s string) (Host, error) {
	if s == "" {
		return Host{}, ErrEmpty
	}
	s = strings.TrimSuffix(s, ".")
	if len(s) > maxName {
		return Host{}, ErrLong
	}
	labels := strings.Split(s, ".")
	for _, label := range labels {
		if label == "" || len(label) > maxLabel {
			return Host{}, ErrLabel
		}
		for i := 0; i < len(label); i++ {
			if !nameByte(label[i]) {
				return Host{}, ErrByte
			}
		}
	}
	s = strings.ToLower(s)
	if numeric(strings.ToLower(labels[len(labels)-1])) {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return Host{}, ErrNumber
		}
		return Host{Addr: a}, nil
	}
	return Host{Name: s}, nil
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// numeric is the URL standard's "ends in a number" rule. getaddrinfo reads
// 2130706433, 0x7f.1, 0177.0.0.1 and 127.1 as 127.0.0.1; Go's resolver does
// not, and our answer must not depend on which one is linked.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
