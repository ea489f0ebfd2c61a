package broker

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
)

const (
	headerBytes  = 64 << 10
	headerFields = 100
	// connsPerBox keeps one box from taking all of the worker's descriptors.
	connsPerBox = 256
)

// Serve answers a box on its own listener, until the listener is closed, by
// the caller or by Close. Only that box's tokens work there.
func (b *Broker) Serve(l net.Listener, box string) error {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.answer(box, w, r, func(x *exchange) (call, string) { return b.admit(box, x) })
	})
	return b.serve(newLane(b, l, box, handler), box, &http.Server{Handler: handler})
}

func (b *Broker) serve(l net.Listener, box string, s *http.Server) error {
	s.ReadHeaderTimeout, s.IdleTimeout, s.MaxHeaderBytes = headWait, idleWait, headerBytes
	// No write or read timeout: a model may think for minutes.
	s.ConnState = func(c net.Conn, state http.ConnState) { b.track(box, c, state) }
	// net/http's own lines quote what the box sent.
	s.ErrorLog = log.New(io.Discard, "", 0)
	s.DisableGeneralOptionsHandler = true
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		l.Close()
		return reason.New(reason.System, "the broker is closed")
	}
	b.servers[s] = true
	b.mu.Unlock()
	err := s.Serve(l)
	s.Close() // the connections, too, if the caller closed the listener
	b.mu.Lock()
	delete(b.servers, s)
	b.mu.Unlock()
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return reason.New(reason.System, "serve the broker in box %s: %w", box, err)
}

// track knows the connections of each box, so that Revoke can cut them.
func (b *Broker) track(box string, c net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c = underneath(c)
	switch state {
	case http.StateNew:
		if b.conns[box][c] {
			return // the lane had it before
		}
		if len(b.conns[box]) >= connsPerBox {
			c.Close()
			return
		}
		if b.conns[box] == nil {
			b.conns[box] = map[net.Conn]bool{}
		}
		b.conns[box][c] = true
	case http.StateClosed: // one that was taken over counts until its tunnel ends
		b.drop(box, c)
	}
}

func (b *Broker) untrack(box string, c net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(box, underneath(c))
}

func (b *Broker) drop(box string, c net.Conn) {
	delete(b.conns[box], c)
	if len(b.conns[box]) == 0 {
		delete(b.conns, box)
	}
}

// exchange is one request and what became of it.
type exchange struct {
	http.ResponseWriter
	r     *http.Request
	event Event
	shape shape
	wrote bool
	up    *atomic.Int64 // of the request's body, so far
	mcp   *mcpExchange  // nil for anything but an MCP server
}

func (x *exchange) WriteHeader(status int) {
	x.wrote, x.event.Status = true, status
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	n, err := x.ResponseWriter.Write(p)
	x.event.Down += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *exchange) refuse(code string) {
	x.event.Code = code
	if x.mcp != nil {
		x.refuseMCP(code, refuse(code).message)
		return
	}
	refuse(code).write(x, x.shape)
}

// answer is one request from its first byte to its line in the log.
func (b *Broker) answer(box string, w http.ResponseWriter, r *http.Request, admit func(*exchange) (call, string)) {
	x := &exchange{ResponseWriter: w, r: r, up: new(atomic.Int64), event: Event{
		Time: b.now(), Kind: Requesting, Box: box, Method: methodName(r.Method),
	}}
	start := time.Now()
	defer func() {
		cut := x.recover(recover())
		x.event.Took = time.Since(start)
		b.count("broker.requests")
		b.log(x.event)
		if cut {
			panic(http.ErrAbortHandler) // net/http ends the connection without a word
		}
	}()
	call, code := admit(x)
	switch {
	case code != "":
		b.count("broker.refused")
		x.refuse(code)
	case call.mcp != nil:
		b.forwardMCP(x, *call.mcp)
	case call.route != nil && call.route.local:
		x.WriteHeader(http.StatusOK)
	default:
		b.forward(x, call)
	}
}

// recover turns a fault of ours into an answer and an event. It tells whether
// the connection must be cut.
func (x *exchange) recover(fault any) bool {
	if fault == nil || fault == http.ErrAbortHandler {
		return fault != nil
	}
	x.event.Kind, x.event.Stack = Failing, string(debug.Stack())
	if x.wrote {
		x.event.Code = "broker_fault"
		return true
	}
	clear(x.Header()) // perhaps half of an upstream's
	x.refuse("broker_fault")
	return false
}

// call is a request that may be forwarded, or answered here.
type call struct {
	token     *token
	grant     *grant
	route     *route          // nil for a WebSocket
	websocket *websocketRoute // nil for anything else
	target    target
	key       *liveKey // that it goes out with; forward finds it
	mcp       *mcpCall // then nothing else
}

// admit says what a request may do, or the code of its refusal.
func (b *Broker) admit(box string, x *exchange) (call, string) {
	if code := checkForm(x.r); code != "" {
		return call{}, code
	}
	t, ok := splitTarget(x.r.RequestURI)
	if !ok {
		return call{}, "not_found"
	}
	if l := b.leaseOf(t.token); l != nil || strings.HasPrefix(t.grant, mcpPrefix) {
		return b.admitMCP(box, x, t, l)
	}
	x.shape = shapeOf(t.grant)
	if p, ok := providerNamed(t.grant); ok {
		x.event.Grant = p.name
	}
	token, g, code := b.authorise(box, t.token, t.grant)
	if g != nil {
		x.event.Grant = g.provider.name
	}
	if token != nil {
		x.event.Bot, x.event.Conversation = token.bot, token.conversation
	}
	if code == "wrong_box" {
		b.stolen(box, token)
	}
	upgrade := asksUpgrade(x.r)
	if code != "" && upgrade {
		// Any other status costs Codex seven attempts and ten seconds (measured
		// with 0.171); the POST that follows shows the cause.
		return call{}, "upgrade_required"
	}
	if code != "" {
		return call{}, code
	}
	if !checkPath(t.path) || t.hasQuery && !checkQuery(t.query) {
		return call{}, "bad_request"
	}
	if upgrade {
		row, code := g.upgrade(x.r, t.path)
		if code != "" {
			return call{}, code
		}
		x.event.Route = row.path
		return call{token: token, grant: g, websocket: row, target: t}, ""
	}
	r, known := g.provider.rule(x.r.Method, t.path)
	switch {
	case !known:
		return call{}, "path_refused"
	case r == nil:
		return call{}, "method_refused"
	}
	x.event.Route = r.path
	return call{token: token, grant: g, route: r, target: t}, ""
}

// checkForm refuses requests that could be read in two ways, whatever their
// token.
func checkForm(r *http.Request) string {
	fields := 0
	for _, values := range r.Header {
		fields += len(values)
	}
	switch {
	case r.Method == "CONNECT" || r.Method == "TRACE" || r.Method == "TRACK":
		return "method_refused"
	case len(r.RequestURI) == 0 || r.RequestURI[0] != '/':
		return "bad_request" // absolute-form, authority-form, "*"
	case fields > headerFields:
		return "too_many_headers"
	case overrides.hasAny(r.Header):
		return "method_refused"
	}
	return ""
}

// stolen ends a token that another box showed.
func (b *Broker) stolen(box string, t *token) {
	b.kill(t, true)
	b.Settle() // whatever becomes of us: the next worker must not find it alive
	b.count("broker.stolen")
	b.log(Event{Time: b.now(), Kind: Stealing, Box: box, Owner: t.box, Bot: t.bot, Conversation: t.conversation})
}
