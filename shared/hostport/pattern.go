package hostport

import "strings"

// Pattern is one entry of an allow list: a host, or every name below one.
// `*.example.com` does not match example.com itself.
type Pattern struct {
	host  Host // port 0 is any port
	below bool // only names below host.Name
}

// ParsePattern reads HOST[:PORT] or *.HOST[:PORT]. Without a port the pattern
// matches every port. A bare * is refused: "every host" is said by having no
// allow list, never by an entry that a reader can overlook.
func ParsePattern(s string) (Pattern, error) {
	rest, below := strings.CutPrefix(s, "*.")
	if strings.IndexByte(rest, '*') >= 0 {
		return Pattern{}, ErrPattern
	}
	h, err := parse(rest)
	if err != nil {
		return Pattern{}, err
	}
	if below && h.Addr.IsValid() {
		return Pattern{}, ErrPattern
	}
	return Pattern{h, below}, nil
}

// Match tells whether the pattern covers h.
func (p Pattern) Match(h Host) bool {
	if p.host.Port != 0 && p.host.Port != h.Port {
		return false
	}
	if p.below {
		sub, ok := strings.CutSuffix(h.Name, "."+p.host.Name)
		return ok && sub != ""
	}
	return p.host.Addr == h.Addr && p.host.Name == h.Name
}

// String gives the pattern as it is written.
func (p Pattern) String() string {
	s := p.host.String()
	if p.host.Port == 0 {
		s = strings.TrimSuffix(s, ":0")
	}
	if p.below {
		s = "*." + s
	}
	return s
}
