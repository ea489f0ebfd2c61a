package turn

import (
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/devtools"
	"github.com/openmausbot/botbox/worker/internal/gate/egress"
	"github.com/openmausbot/botbox/worker/internal/gate/harness"
	"github.com/openmausbot/botbox/worker/internal/gate/socks"
)

// server is what serves one donated listener.
type server interface {
	Serve(net.Listener) error
	Close()
}

// chooseGates makes the servers of this box's ports, in the ports' order. They
// do nothing before they have a listener.
func (t *Turn) chooseGates() error {
	dialer, err := t.narrow(t.runner.Egress)
	if err != nil {
		return err
	}
	t.egress = dialer
	if t.Spec.Kind == "browser" {
		t.gates = map[int]server{
			t.Plan.Ports.SOCKS: socks.New(socks.Options{Box: t.ID, Dialer: dialer, Log: t.decided, Fault: t.fault}),
		}
		return nil
	}
	har, err := harness.New(harness.Options{Box: t.ID, Upstream: t.harness(), Log: t.decided, Fault: t.fault})
	if err != nil {
		return reason.New(reason.BadSpec, "the spec is not usable: field net.harness.upstream: %w", err)
	}
	t.gates = map[int]server{
		t.Plan.Ports.Egress:  egress.New(egress.Options{Box: t.ID, Dialer: dialer, Log: t.decided, Fault: t.fault, Intercept: t.hosts.interceptor()}),
		t.Plan.Ports.Broker:  brokered{t},
		t.Plan.Ports.Harness: har,
	}
	return nil
}

// fault logs a panic over one connection; the other boxes' go on.
func (t *Turn) fault(cause any, stack []byte) {
	t.runner.Log.Error("a gate failed on a connection", slog.String("box_id", t.ID),
		slog.String("cause", fmt.Sprint(cause)), slog.String("stack", string(stack)))
}

// brokered serves the box's own listener of the credential broker.
type brokered struct{ t *Turn }

func (b brokered) Serve(l net.Listener) error { return b.t.runner.Broker.Serve(l, b.t.ID) }
func (b brokered) Close()                     { b.t.runner.Broker.Revoke(b.t.ID) }

// serving are the donated listeners with the servers that they were given to.
type serving struct {
	listeners []net.Listener
	servers   []server
	inward    *gate.Inward
	debug     *devtools.Port
	done      sync.WaitGroup
}

// attach serves the donated listeners, which come in the order of Plan.Listen,
// and takes the spares. The box is known by the listener that accepts, before a
// byte is read.
func (t *Turn) attach(live *box.Live) *serving {
	s := &serving{listeners: live.Listeners, inward: gate.NewInward(live.Spares), debug: t.debug}
	t.lead(s)
	for i, l := range s.listeners {
		port := t.Plan.Listen[i]
		g := t.gates[port]
		if t.front != nil {
			l = t.front(port, l)
			s.listeners[i] = l
		}
		s.servers = append(s.servers, g)
		s.done.Go(func() { g.Serve(l) })
	}
	if t.hosts != nil {
		s.listeners = append(s.listeners, t.hosts.listener)
		s.done.Go(func() { t.runner.Broker.ServeHosts(t.hosts.listener, t.ID) })
	}
	return s
}

// close frees the box's network namespace: a listener that stays open keeps
// it alive after the last process in it, and accept then blocks for ever.
func (s *serving) close() {
	s.inward.Close()
	s.debug.Close()
	for _, l := range s.listeners {
		l.Close()
	}
	for _, g := range s.servers {
		g.Close()
	}
	s.done.Wait()
}
