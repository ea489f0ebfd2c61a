package harness

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/http1"
)

// Decision is one line of the log.
type Decision = gate.Decision

// Options configure the gate of one box.
type Options struct {
	Box      string                        // for the log
	Upstream string                        // "tcp:ADDR:PORT" or "unix:/PATH" of the server
	Host     string                        // the Host field that the server sees; "" is localhost
	Log      func(Decision)                // once for each request; called from many goroutines
	Fault    func(cause any, stack []byte) // hears of a panic; nil lets it through

	Max     int           // connections at once; 0 is 256
	MaxBody int64         // bytes of a request's body; 0 is 32 MiB
	Idle    time.Duration // an exchange over which nothing passes ends; 0 is 30 minutes
}

// Gate is one box's harness gate.
type Gate struct {
	gate.Server
	opts             Options
	network, address string
}

// New makes a gate. It does nothing until Serve. The error is reason
// bad-setting: the upstream is not in one of its two forms.
func New(o Options) (*Gate, error) {
	network, address, _ := strings.Cut(o.Upstream, ":")
	_, err := netip.ParseAddrPort(address) // a name would be looked up for every request
	if !(network == "tcp" && err == nil) && !(network == "unix" && strings.HasPrefix(address, "/")) {
		return nil, reason.New(reason.BadSetting, "the harness gate's upstream is neither tcp:ADDR:PORT nor unix:/PATH")
	}
	if o.MaxBody == 0 {
		o.MaxBody = 32 << 20
	}
	o.Idle = cmp.Or(o.Idle, gate.DefaultIdle)
	if o.Host == "" {
		o.Host = "localhost"
	}
	g := &Gate{opts: o, network: network, address: address}
	g.Server = gate.Server{
		Journal: gate.Journal{Box: o.Box, Log: o.Log},
		Max:     o.Max, Handle: g.handle, Full: g.full, Fault: o.Fault,
	}
	return g, nil
}

func (g *Gate) full(c gate.Stream) {
	e := g.Begin("harness")
	defer e.End()
	e.Refuse(c, gate.TooMany(), "the connection")
}

// handle serves one client connection.
func (g *Gate) handle(ctx context.Context, c gate.Stream) {
	conn := http1.NewConn(c)
	defer conn.Free()
	for {
		req, refusal, ok := conn.Next()
		if !ok {
			return
		}
		if refusal == nil && g.relay(ctx, conn, req) {
			continue
		}
		if refusal != nil {
			e := g.Begin("harness")
			e.Refuse(c, refusal, "the request")
			e.End()
		}
		return
	}
}

// relay passes one request on. It returns whether the client's connection may
// carry another one; the upstream's never does.
func (g *Gate) relay(ctx context.Context, conn *http1.Conn, req *http1.Request) (more bool) {
	e := g.Begin("harness")
	defer e.End()
	if r := judge(req.Method, req.Target); r != nil {
		e.Refuse(conn.Stream, r, "the request to the server")
		return false
	}
	e.Allowed, e.Class = true, "harness"
	x := http1.Exchange{
		Client: conn, Request: req, Idle: g.opts.Idle, MaxBody: g.opts.MaxBody,
		Head: req.Head(req.Target, g.opts.Host, dropped, false), Held: held,
		Dial: func() (gate.Stream, *gate.Refusal) { return g.dial(ctx) },
	}
	result := x.Run(ctx)
	e.Status, e.Up, e.Down = result.Status, result.Up, result.Down
	if result.Refusal != nil {
		e.Refuse(conn.Stream, result.Refusal, "the request to the server")
		return false
	}
	if !result.Keep {
		gate.Linger(conn.Stream)
	}
	return result.Keep
}

func (g *Gate) dial(ctx context.Context) (gate.Stream, *gate.Refusal) {
	d := net.Dialer{Timeout: 10 * time.Second}
	c, err := d.DialContext(ctx, g.network, g.address)
	if err != nil {
		return nil, &gate.Refusal{Status: 502, Class: "upstream", Reason: "the server does not answer", Hint: "See whether the server runs.", ProxyStatus: "destination_unavailable"}
	}
	return c.(gate.Stream), nil
}
