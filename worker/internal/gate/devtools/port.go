package devtools

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/gate"
)

const (
	maxConns      = 64 // beyond the box's spares they wait for their turn
	connectWithin = 5 * time.Second
	// A driver that is idle for a night is none that has gone: both ends are of
	// this machine, and their ends are seen.
	idle = 30 * 24 * time.Hour
)

// Way connects to the loopback of one box; *gate.Inward is one.
type Way interface {
	Dial(ctx context.Context, family gate.Family, port uint16) (*net.TCPConn, func(), error)
}

// Port is one browser's debugging port on this machine's loopback.
type Port struct {
	Number int
	ln     net.Listener
	server gate.Server
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// Listen takes a port of this machine, or for 0 one that is free.
func Listen(port int) (*Port, error) {
	ln, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, reason.New(reason.PortTaken, "the browser's debugging port cannot be served: %w", err)
	}
	p := &Port{Number: ln.Addr().(*net.TCPAddr).Port, ln: ln}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Serve relays connections into the box until Close. File is where the browser
// is expected to tell its port, nil for nowhere.
func (p *Port) Serve(way Way, file *File, fault func(cause any, stack []byte)) {
	p.server.Max, p.server.Fault = maxConns, fault
	p.server.Full = func(gate.Stream) {} // closed without a word: it speaks another protocol
	p.server.Handle = func(ctx context.Context, c gate.Stream) { p.relay(ctx, way, c) }
	p.work.Go(func() { p.server.Serve(p.ln) })
	if file != nil {
		p.work.Go(func() { p.announce(way, file) })
	}
}

func (p *Port) relay(ctx context.Context, way Way, c gate.Stream) {
	tcp, ok := c.(*net.TCPConn)
	if !ok || !ours(tcp) {
		return
	}
	dial, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	boxed, release, err := way.Dial(dial, gate.V4, uint16(p.Number))
	if err != nil {
		return
	}
	defer release()
	gate.Tunnel(c, boxed, idle)
}

// Close ends the port and every connection over it. It may be called more than
// once, and by nobody who holds p nil.
func (p *Port) Close() {
	if p == nil {
		return
	}
	p.cancel()
	p.ln.Close()
	p.server.Close()
	p.work.Wait()
}
