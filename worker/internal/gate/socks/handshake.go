package socks

import (
	"errors"
	"io"
	"net/netip"

	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/worker/internal/gate"
)

// RFC 1928's numbers.
const (
	version    = 5
	noAuth     = 0x00
	noMethod   = 0xff
	cmdConnect = 1
	atypIPv4   = 1
	atypName   = 3
	atypIPv6   = 4
)

// Reply is RFC 1928's one byte for how a request ended.
type Reply byte

// The replies that we give.
const (
	Succeeded  Reply = 0
	Failed     Reply = 1 // malformed, or a cap
	NotAllowed Reply = 2
	NoRoute    Reply = 3
	NoHost     Reply = 4 // a name that cannot be resolved
	Refused    Reply = 5
	TimedOut   Reply = 6
	NoCommand  Reply = 7
	NoAddress  Reply = 8
	unanswered Reply = 0xff // the client speaks something else, or is gone
)

// malformed is the class of what breaks the protocol, as in the other gates.
const malformed = "malformed"

// errOther is the fault of a client that does not speak SOCKS5.
var errOther = errors.New("not SOCKS5")

// readGreeting reads the methods that a client offers, and tells whether "no
// authentication" is among them. It takes no byte more than the greeting has.
func readGreeting(r io.Reader) (usable bool, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return false, err
	}
	if head[0] != version { // at once: a SOCKS4 or HTTP client sends nothing that we wait for
		return false, errOther
	}
	if _, err := io.ReadFull(r, head[1:]); err != nil {
		return false, err
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(r, methods); err != nil {
		return false, err
	}
	for _, m := range methods {
		if m == noAuth {
			return true, nil
		}
	}
	return false, nil
}

// readRequest reads where a client wants to go. It takes no byte more than the
// request has: what follows belongs to the tunnel. On an error nothing can be
// answered; a reply other than Succeeded is the answer.
func readRequest(r io.Reader) (hostport.Host, Reply, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return hostport.Host{}, unanswered, err
	}
	if head[0] != version {
		return hostport.Host{}, unanswered, errOther
	}
	address, known, err := readAddress(r, head[3])
	if err != nil {
		return hostport.Host{}, unanswered, err
	}
	if !known {
		return hostport.Host{}, NoAddress, nil
	}
	var port [2]byte
	if _, err := io.ReadFull(r, port[:]); err != nil {
		return hostport.Host{}, unanswered, err
	}
	switch {
	case head[2] != 0: // RESERVED
		return hostport.Host{}, Failed, nil
	case head[1] != cmdConnect:
		return hostport.Host{}, NoCommand, nil
	}
	h, err := target(head[3], address, uint16(port[0])<<8|uint16(port[1]))
	if err != nil {
		return hostport.Host{}, Failed, nil
	}
	return h, Succeeded, nil
}

// readAddress reads an address of the kind that the request names. The length
// of one of another kind cannot be known.
func readAddress(r io.Reader, kind byte) (address []byte, known bool, err error) {
	length := map[byte]int{atypIPv4: 4, atypIPv6: 16}[kind]
	if kind == atypName {
		var n [1]byte
		if _, err := io.ReadFull(r, n[:]); err != nil {
			return nil, false, err
		}
		length = int(n[0])
	} else if length == 0 {
		return nil, false, nil
	}
	address = make([]byte, length)
	_, err = io.ReadFull(r, address)
	return address, true, err
}

// target gives the host in its one canonical form: a name that is an address,
// and an IPv4 address in IPv6's clothes, are judged as what they are.
func target(kind byte, address []byte, port uint16) (hostport.Host, error) {
	if kind == atypName {
		// Chrome sends an IPv6 literal as a name, without brackets. Every
		// other name has the one grammar of all gates.
		a, err := netip.ParseAddr(string(address))
		if err != nil || !a.Is6() || a.Zone() != "" {
			return hostport.New(string(address), port)
		}
		address = a.AsSlice()
	}
	if port == 0 {
		return hostport.Host{}, hostport.ErrPort
	}
	a, _ := netip.AddrFromSlice(address) // of 4 or 16 bytes: it is one
	return hostport.Host{Addr: a.Unmap(), Port: port}, nil
}

// replyOf gives the reply for a refusal of the dialer's. SOCKS has no words,
// so the number is all that a client learns.
func replyOf(r *gate.Refusal) Reply {
	switch r.Class {
	case "dns", "dns-timeout":
		return NoHost
	case "connection-refused":
		return Refused
	case "connection-timeout":
		return TimedOut
	case "unreachable":
		return NoRoute
	}
	if r.Status == 403 {
		return NotAllowed
	}
	return Failed
}

// bytes gives the whole answer. The bound address is always 0.0.0.0:0: which
// address the machine goes out by is none of the box's business.
func (r Reply) bytes() []byte {
	return []byte{version, byte(r), 0, atypIPv4, 0, 0, 0, 0, 0, 0}
}
