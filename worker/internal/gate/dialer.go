package gate

import (
	"context"
	"errors"
	"net"
	"net/netip"
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
	BoxDeny     []hostport.Pattern // wins over every allow list, also for what an allowed name resolves to
	AllowPorts  []uint16           // the machine's: nil is any port that RefusePorts does not name
	BoxPorts    []uint16           // the box's own: nil is any; empty but not nil is none
	RefusePorts []uint16           // nil is port 25, for mail abuse
	Budget      *Budget            // the box's bytes; nil has no end
	// Learn notes which hosts are reached and passes over the lists of hosts
	// and ports: over nothing else, not over an address, a refused name or a
	// refused port. Nil is no learning.
	Learn *Lessons
	// Except names addresses that are let through although the address
	// policy refuses them. It lifts nothing else: not the allow list, not a
	// port, not a refused name.
	Except []netip.AddrPort

	dialing func(netip.AddrPort) // tests hear what connect is about to be asked for
}

// Dial connects to h, or says why not. Who keeps the connection without a
// watch of NewIdle asks for its probes.
func (d *Dialer) Dial(ctx context.Context, h hostport.Host) (*net.TCPConn, *Refusal) {
	if r := d.Permits(h); r != nil {
		return nil, r
	}
	ctx = deadline{ctx, time.Now().Add(dialTimeout)}
	targets, r := d.targets(ctx, h)
	if r != nil {
		return nil, r
	}
	c, err := d.race(ctx, targets)
	if err != nil {
		return nil, failed(err, h)
	}
	d.Learn.reached(h)
	return c, nil
}

// deadline is a context with an end that it does not tell of: lookup has a
// timeout of its own, and connect gives the end to the socket. A timer for it
// beside the socket's would be one too many for each connection.
type deadline struct {
	context.Context
	end time.Time
}

func (d deadline) Deadline() (time.Time, bool) {
	if end, ok := d.Context.Deadline(); ok && end.Before(d.end) {
		return end, true
	}
	return d.end, true
}

// failed turns a dialling error into what the box may know of it. A literal
// that the box wrote is named by its class; what a name resolved to is not,
// or the box could map an internal DNS through us.
func failed(err error, h hostport.Host) *Refusal {
	if r := (*Refusal)(nil); errors.As(err, &r) {
		if h.Name != "" && r.Status == 403 && r.Class != classDenied {
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
		KeepAlive: -1, // NewIdle sees to the probes
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			actual, err := netip.ParseAddrPort(address)
			if err != nil {
				return unreachable()
			}
			if r := d.judge(actual); r != nil {
				return r
			}
			if d.dialing != nil {
				d.dialing(actual)
			}
			return nil
		},
	}
	// Not DialTCP: that binds the socket first, and then a port of this machine
	// serves one connection and not one to each host.
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
