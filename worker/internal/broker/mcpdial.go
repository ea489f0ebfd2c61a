package broker

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/openmausbot/botbox/shared/addrpolicy"
)

// mcpPlaces are the classes of addresses at which an MCP server may be. Unlike
// a box's own connections these go where somebody's settings say, and many
// servers are in a home network or on this machine itself.
var mcpPlaces = []struct {
	class addrpolicy.Class
	why   string
}{
	{addrpolicy.Public, "most servers"},
	{addrpolicy.Private, "servers of a home or an office"},
	{addrpolicy.CGNAT, "the same, in an overlay network"},
	{addrpolicy.Loopback, "servers that run beside us; the port of the server whose gate has one door is not among them"},
	{addrpolicy.Translation, "a network without IPv4 has public servers there"},
}

// errNoPlace: the address is none that a server may have.
var errNoPlace = errors.New("no place for an MCP server")

// newMCPTransport looks at the address that is really dialled, after every
// name was resolved. A name can be pointed elsewhere at any time.
func newMCPTransport(ownPort uint16) *http.Transport {
	t := newTransport()
	dialer := net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil || !mcpPlace(at, ownPort) {
			return errNoPlace
		}
		return nil
	}}
	t.DialContext = dialer.DialContext
	return t
}

func mcpPlace(at netip.AddrPort, ownPort uint16) bool {
	verdict := addrpolicy.Classify(at.Addr())
	if !slices.ContainsFunc(mcpPlaces, func(p struct {
		class addrpolicy.Class
		why   string
	}) bool {
		return p.class == verdict.Class
	}) {
		return false
	}
	return ownPort == 0 || at.Port() != ownPort || !ownAddress(at.Addr(), verdict)
}

// ownAddress: the server listens on this machine's loopback, or on all of it.
func ownAddress(a netip.Addr, v addrpolicy.Verdict) bool {
	if v.Class == addrpolicy.Loopback {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true // not to be ruled out
	}
	return slices.ContainsFunc(all, func(own net.Addr) bool {
		p, err := netip.ParsePrefix(own.String())
		return err == nil && p.Addr().Unmap() == a.Unmap()
	})
}

// MCPTransport reaches what a turn's requests to MCP servers reach.
func (b *Broker) MCPTransport() http.RoundTripper {
	if b.transport != nil {
		return b.transport
	}
	return newMCPTransport(b.ownPort)
}
