package selfcheck

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

// origin is an HTTP server that says one thing, whatever it is asked, and
// counts.
type origin struct {
	http.Server
	address netip.AddrPort
	says    string
	came    atomic.Int64
}

func (s *origin) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.came.Add(1)
	io.WriteString(w, s.says)
}

// names is the resolver of the egress gate of the self-check's own box. It
// asks nobody: no name of ours leaves this machine.
type names struct {
	mu    sync.Mutex
	turns int // how often the turning name was asked for
}

const (
	farName     = "far.botbox-check.example"
	turningName = "turning.botbox-check.example"
)

// here is a second address of this machine, where nobody may be sent.
var here = netip.AddrFrom4([4]byte{127, 0, 0, 2})

// LookupNetIP answers for two names. The turning one is the far server's first
// and this machine's from then on.
func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	far := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	switch host {
	case farName + ".":
		return far, nil
	case turningName + ".":
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.turns++; n.turns > 1 {
			return []netip.Addr{here}, nil
		}
		return far, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func (n *names) asked() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.turns
}

// dialer is the machine's, without the operator's lists: they may well refuse
// what the checks need as their control. One server of ours is excepted from
// the address policy and stands for the public ones, for the self-check sends
// nothing to anybody; and port 25 beside it, so that only the rule about that
// port is left to refuse it.
func (o *outside) dialer(machine gate.Dialer) gate.Dialer {
	machine.Resolver, machine.AllowHosts, machine.AllowPorts, machine.RefusePorts = &o.dns, nil, nil, nil
	far := o.far.address
	machine.Except = []netip.AddrPort{far, netip.AddrPortFrom(far.Addr(), 25)}
	return machine
}

// openFar starts the server behind the egress gate, what stands at the same
// port of the address that the turning name turns to, and two
// servers that no request of the broker's may reach.
func (o *outside) openFar() (err error) {
	o.far.says, o.turned.says, o.decoy.says, o.away.says = "far-"+random(), "turned-"+random(), "decoy-"+random(), "away-"+random()
	for range 16 { // until the port is free at both addresses
		if o.far.address, err = serve(&o.far.Server, &o.far); err != nil {
			return err
		}
		at := netip.AddrPortFrom(here, o.far.address.Port())
		if o.turned.address, err = serveAt(at.String(), &o.turned.Server, &o.turned); err == nil {
			break
		}
		o.far.Close()
		o.far.Server = http.Server{}
	}
	if err != nil {
		return err
	}
	o.later(o.far.Close)
	o.later(o.turned.Close)
	for _, s := range []*origin{&o.decoy, &o.away} {
		if s.address, err = serve(&s.Server, s); err != nil {
			return err
		}
		o.later(s.Close)
	}
	port := strconv.Itoa(int(o.far.address.Port()))
	o.Far, o.FarSays, o.FarName, o.TurningName = o.far.address.String(), o.far.says, net.JoinHostPort(farName, port), net.JoinHostPort(turningName, port)
	o.Decoy = o.decoy.address.String()
	return nil
}

// answerDatagrams stands for a name server on this machine.
func (o *outside) answerDatagrams() error {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	o.later(conn.Close)
	o.UDPPort = conn.LocalAddr().(*net.UDPAddr).Port
	go func() {
		for buf := make([]byte, 512); ; {
			_, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			conn.WriteTo([]byte(greeting), from)
		}
	}()
	return nil
}

// askDatagram is the control.
func (o *outside) askDatagram() error {
	conn, err := net.Dial("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.UDPPort)))
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(deadline())
	if _, err := io.WriteString(conn, o.Marker); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 64))
	return err
}

// openMoreDoors opens those that a shared network would show beside the seed's.
func (o *outside) openMoreDoors() (err error) {
	if o.mapped, err = openDoor("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	o.later(o.mapped.listener.Close)
	o.MappedPort = o.mapped.listener.Addr().(*net.TCPAddr).Port
	o.Abstract = "botbox-check-" + random()
	if o.abstract, err = openDoor("unix", "@"+o.Abstract); err != nil {
		return err
	}
	o.later(o.abstract.listener.Close)
	o.sixth, err = openDoor("tcp6", "[::1]:0")
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
		o.noSix = errors.Is(err, unix.EAFNOSUPPORT)
		o.sixth = nil // this machine has no ::1, and then no box shares one
		return nil
	}
	if err != nil {
		return err
	}
	o.later(o.sixth.listener.Close)
	o.LoopbackV6 = o.sixth.listener.Addr().(*net.TCPAddr).Port
	return nil
}
