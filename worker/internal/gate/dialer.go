package gate

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/openmausbot/botbox/shared/addrpolicy"
	"github.com/openmausbot/botbox/shared/hostport"
)

const (
	lookupTimeout = 5 * time.Second
	dialTimeout   = 10 * time.Second       // lookup and every attempt together
	stagger       = 250 * time.Millisecond // RFC 8305 §5
	maxAttempts   = 8                      // addresses of one name that are tried
	keepAlive     = 30 * time.Second
)

// Resolver looks names up. *net.Resolver is one. The name ends with a dot, so
// no search list is applied: "example.com" must not become
// "example.com.internal".
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer is the one way from a box to the world. The zero value dials any
// public host on any port but 25.
type Dialer struct {
	Resolver    Resolver           // nil is Go's own
	AllowHosts  []hostport.Pattern // the machine's: nil is any host; empty but not nil is none
	BoxHosts    []hostport.Pattern // the box's own, which can only narrow the machine's
	AllowPorts  []uint16           // nil is any port that RefusePorts does not name
	RefusePorts []uint16           // nil is port 25, for mail abuse
	// Except names addresses that are let through although the address
	// policy refuses them. It lifts nothing else: not the allow list, not a
	// port, not a refused name.
	Except []netip.AddrPort
}

// Dial connects to h, or says why not. The connection is a *net.TCPConn.
func (d *Dialer) Dial(ctx context.Context, h hostport.Host) (*net.TCPConn, *Refusal) {
	if r := d.permitted(h); r != nil {
		return nil, r
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	targets, r := d.targets(ctx, h)
	if r != nil {
		return nil, r
	}
	c, err := d.race(ctx, targets)
	if err != nil {
		return nil, failed(err, h)
	}
	return c, nil
}

// permitted is what can be said of h without any packet.
func (d *Dialer) permitted(h hostport.Host) *Refusal {
	refuse := d.RefusePorts
	if refuse == nil {
		refuse = []uint16{25}
	}
	if h.Port == 0 || slices.Contains(refuse, h.Port) || d.AllowPorts != nil && !slices.Contains(d.AllowPorts, h.Port) {
		return Denied("port", "this port is closed to boxes", "Use another port, or change the gate's port setting.")
	}
	if !listed(d.AllowHosts, h) || !listed(d.BoxHosts, h) {
		return Denied("not-allowed", "the host is not on this box's allow list", "Ask whoever started the box to allow the host.")
	}
	if h.Name == "" {
		return nil
	}
	why, refused := addrpolicy.RefusedName(h.Name)
	switch {
	case !refused:
		return nil
	case h.Name == "localhost":
		return loopback("name")
	}
	return Denied("name", why, hintPolicy)
}

// listed tells whether a list lets h through.
func listed(allow []hostport.Pattern, h hostport.Host) bool {
	return allow == nil || slices.ContainsFunc(allow, func(p hostport.Pattern) bool { return p.Match(h) })
}

// failed turns a dialling error into what the box may know of it. A literal
// that the box wrote is named by its class; what a name resolved to is not,
// or the box could map an internal DNS through us.
func failed(err error, h hostport.Host) *Refusal {
	if r := (*Refusal)(nil); errors.As(err, &r) {
		if h.Name != "" && r.Status == 403 {
			return nonPublic()
		}
		return r
	}
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return &Refusal{502, "connection-refused", "the host refused the connection", hintLater, "connection_refused"}
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return &Refusal{504, "connection-timeout", "the host did not answer in time", hintLater, "connection_timeout"}
	}
	return unreachable()
}

func unreachable() *Refusal {
	return &Refusal{502, "unreachable", "the host cannot be reached from here", hintLater, "destination_ip_unroutable"}
}

func nonPublic() *Refusal {
	return &Refusal{403, "non-public", "the name resolves to a non-public address", hintPolicy, "destination_ip_prohibited"}
}

// connect dials one judged address, and judges it once more on the socket
// that is about to connect: no code between here and the kernel can put
// another address in.
func (d *Dialer) connect(ctx context.Context, ap netip.AddrPort) (*net.TCPConn, error) {
	nd := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive},
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			actual, err := netip.ParseAddrPort(address)
			if err != nil {
				return unreachable()
			}
			if r := d.judge(actual); r != nil {
				return r
			}
			return nil
		},
	}
	c, err := nd.DialContext(ctx, "tcp", ap.String())
	if err != nil {
		return nil, err
	}
	t := c.(*net.TCPConn)
	// The belt: an address that became ours since the routing table was
	// asked shows here, because the kernel then takes it for the source too.
	if !d.excepted(ap) && addrOf(t.RemoteAddr()) == addrOf(t.LocalAddr()) {
		t.Close()
		return nil, deniedAddress(ownAddress)
	}
	return t, nil
}

func addrOf(a net.Addr) netip.Addr { return a.(*net.TCPAddr).AddrPort().Addr().Unmap() }

// ClassOf gives the class of the address that c is connected to: "public", or
// for an exception what it is an exception from.
func ClassOf(c *net.TCPConn) string { return string(addrpolicy.Classify(addrOf(c.RemoteAddr())).Class) }
