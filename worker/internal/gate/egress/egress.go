package egress

import (
	"cmp"
	"context"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/http1"
)

// Decision is one line of the log.
type Decision = gate.Decision

// Options configure the gate of one box.
type Options struct {
	Box    string // for the log
	Dialer gate.Dialer
	Log    func(Decision)                // once for each request; called from many goroutines
	Fault  func(cause any, stack []byte) // hears of a panic; nil lets it through

	Intercept Interceptor // nil where no host is declared

	Max  int           // connections at once; 0 is 256
	Idle time.Duration // a pair over which nothing passes ends; 0 is 30 minutes
}

// Gate is one box's egress gate.
type Gate struct {
	gate.Server
	opts Options
}

// New makes a gate. It does nothing until Serve.
func New(o Options) *Gate {
	o.Idle = cmp.Or(o.Idle, gate.DefaultIdle)
	g := &Gate{opts: o}
	g.Server = gate.Server{
		Journal: gate.Journal{Box: o.Box, Log: o.Log},
		Max:     o.Max, Handle: g.handle, Full: g.full, Fault: o.Fault,
	}
	return g
}

func (g *Gate) full(c gate.Stream) {
	e := g.Begin("")
	defer e.End()
	e.Refuse(c, gate.TooMany(), "the connection")
}

// handle serves one client connection.
func (g *Gate) handle(ctx context.Context, c gate.Stream) {
	conn := http1.NewConn(c)
	defer conn.Free()
	for {
		req, refusal, ok := conn.Next()
		switch {
		case !ok:
			return
		case refusal != nil:
			e := g.Begin("")
			e.Refuse(c, refusal, "the request")
			e.End()
			return
		case req.Method == "CONNECT":
			g.connect(ctx, conn, req)
			return
		case !g.forward(ctx, conn, req):
			return
		}
	}
}

// connect opens a tunnel. The Host field is ignored: some clients send the
// proxy's own name in it (libgit2 PR#6022).
func (g *Gate) connect(ctx context.Context, conn *http1.Conn, req *http1.Request) {
	e := g.Begin("connect")
	defer e.End()
	host, r := connectTarget(req)
	if r != nil {
		e.Refuse(conn.Stream, r, "CONNECT")
		return
	}
	e.To(host)
	if host.Port == httpsPort && g.declares(host) {
		g.intercept(conn, e, host)
		return
	}
	upstream, r := g.opts.Dialer.Dial(ctx, host)
	if r != nil {
		e.Refuse(conn.Stream, r, "CONNECT "+host.String())
		return
	}
	defer upstream.Close()
	e.Allowed, e.Class, e.Status = true, gate.ClassOf(upstream), 200
	if _, err := conn.Stream.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		return
	}
	budget := g.opts.Dialer.Budget
	early, err := conn.Flush(budget.Writer(upstream))
	if err != nil {
		return
	}
	e.Up, e.Down = budget.Tunnel(conn.Stream, upstream, g.opts.Idle)
	e.Up += int64(early)
}

// forward relays one plain http request. It returns whether the client's
// connection may carry another one.
func (g *Gate) forward(ctx context.Context, conn *http1.Conn, req *http1.Request) (more bool) {
	e := g.Begin("http")
	defer e.End()
	host, path, r := urlTarget(req)
	if r != nil {
		e.Refuse(conn.Stream, r, "the request")
		return false
	}
	e.To(host)
	if g.declares(host) {
		e.Refuse(conn.Stream, inClear(), "the request")
		return false
	}
	x := http1.Exchange{
		Client: conn, Request: req, Idle: g.opts.Idle, Budget: g.opts.Dialer.Budget, Upgrade: req.Websocket(),
		Head: req.Head(path, hostField(host), func(string) bool { return false }, req.Websocket()),
		Dial: func() (gate.Stream, *gate.Refusal) {
			c, r := g.opts.Dialer.Dial(ctx, host)
			if r != nil {
				return nil, r
			}
			e.Allowed, e.Class = true, gate.ClassOf(c)
			return c, nil
		},
	}
	result := x.Run(ctx)
	e.Status, e.Up, e.Down = result.Status, result.Up, result.Down
	if result.Refusal != nil {
		e.Refuse(conn.Stream, result.Refusal, req.Method+" http://"+host.String())
		return false
	}
	if !result.Keep {
		gate.Linger(conn.Stream)
	}
	return result.Keep
}
