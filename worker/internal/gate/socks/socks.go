package socks

import (
	"cmp"
	"context"
	"time"

	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/worker/internal/gate"
)

// handshakeTime bounds greeting and request together.
const handshakeTime = 10 * time.Second

// Decision is one line of the log. Its Status is the reply's number, 0 also
// where there was none.
type Decision = gate.Decision

// Options configure the gate of one box.
type Options struct {
	Box    string // for the log
	Dialer gate.Dialer
	Log    func(Decision)                // once for each request; called from many goroutines
	Fault  func(cause any, stack []byte) // hears of a panic; nil lets it through

	Max       int           // connections at once; 0 is 256
	Idle      time.Duration // a pair over which nothing passes ends; 0 is 30 minutes
	Handshake time.Duration // how long a client may take to say where to; 0 is 10 s
}

// Gate is one box's SOCKS gate.
type Gate struct {
	gate.Server
	opts Options
}

// New makes a gate. It does nothing until Serve.
func New(o Options) *Gate {
	o.Idle = cmp.Or(o.Idle, gate.DefaultIdle)
	if o.Handshake == 0 {
		o.Handshake = handshakeTime
	}
	g := &Gate{opts: o}
	g.Server = gate.Server{
		Journal: gate.Journal{Box: o.Box, Log: o.Log},
		Max:     o.Max, Handle: g.handle, Full: g.full, Fault: o.Fault,
	}
	return g
}

// full tells a client at the cap "none of your methods", the only "no" that
// SOCKS has before a request.
func (g *Gate) full(c gate.Stream) {
	e := g.Begin(method)
	defer e.End()
	e.Class = gate.TooMany().Class
	say(c, []byte{version, noMethod})
}

// method is what decisions of this gate are logged under.
const method = "socks"

// handle serves one client connection, which carries one request.
func (g *Gate) handle(ctx context.Context, c gate.Stream) {
	e := g.Begin(method)
	defer e.End()
	host, ok := g.handshake(e, c)
	if !ok {
		return
	}
	e.To(host)
	upstream, r := g.opts.Dialer.Dial(ctx, host)
	if r != nil {
		refuse(e, c, replyOf(r), r.Class)
		return
	}
	defer upstream.Close()
	e.Allowed, e.Class = true, gate.ClassOf(upstream)
	if _, err := c.Write(Succeeded.bytes()); err != nil {
		return
	}
	c.SetDeadline(time.Time{})
	e.Up, e.Down = g.opts.Dialer.Budget.Tunnel(c, upstream, g.opts.Idle)
}

// handshake reads where the client wants to go. Without ok it has had its
// answer, if there is one.
func (g *Gate) handshake(e *gate.Entry, c gate.Stream) (h hostport.Host, ok bool) {
	c.SetReadDeadline(time.Now().Add(g.opts.Handshake))
	usable, err := readGreeting(c)
	if err != nil {
		e.Class = malformed
		return h, false
	}
	if !usable {
		e.Class = malformed
		say(c, []byte{version, noMethod})
		return h, false
	}
	if _, err := c.Write([]byte{version, noAuth}); err != nil {
		return h, false
	}
	h, reply, err := readRequest(c)
	switch {
	case err != nil:
		e.Class = malformed
		return h, false
	case reply != Succeeded:
		refuse(e, c, reply, malformed)
		return h, false
	}
	return h, true
}

func refuse(e *gate.Entry, c gate.Stream, r Reply, class string) {
	e.Class, e.Status = class, int(r)
	say(c, r.bytes())
}

// say writes a last word and lets the client read it.
func say(c gate.Stream, b []byte) {
	c.SetWriteDeadline(time.Now().Add(time.Second))
	if _, err := c.Write(b); err == nil {
		gate.Linger(c)
	}
}
