package broker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// mcpBuffer is how much of a message is kept: what is kept can be sent again
	// where a redirect points to. A longer one streams through.
	mcpBuffer = 4 << 20
	mcpStep   = 64 << 10
	mcpHops   = 4
	// rpcBodyMost bounds what is read of a long message only to find the id that
	// its refusal has to carry.
	rpcBodyMost = 64 << 20
)

// mcpMethods are the HTTP methods of all five revisions.
var mcpMethods = map[string]bool{"POST": true, "GET": true, "DELETE": true}

// mcpRoutes are the JSON-RPC methods that the log may name. The box writes what
// it likes there.
var mcpRoutes = map[string]bool{
	"initialize": true, "notifications/initialized": true, "server/discover": true, "ping": true,
	"tools/list": true, "tools/call": true, "resources/list": true, "resources/read": true, "resources/templates/list": true,
	"prompts/list": true, "prompts/get": true, "completion/complete": true, "logging/setLevel": true, "subscriptions/listen": true,
}

// mcpCall is a request to a URL server that may go on.
type mcpCall struct {
	lease    *lease
	server   *mcpServer
	use      *mcpUse
	target   target
	endpoint *mcpEndpoint // where a message of the 2024-11-05 transport goes
}

// mcpExchange is what an answer of ours needs to know of a request.
type mcpExchange struct {
	b      *Broker
	lease  *lease // nil: the token is no living conversation's
	server string // empty: it is none that we know
	status int    // of the upstream's answer, in our words
	target string // the host that it pointed to
	body   *mcpBody
	stream string // where the answers of the 2024-11-05 transport go
	meter  *meter // counts what is read for a refusal, too
}

// admitMCP says what a request under /mcp-… may do, or the code of its refusal.
func (b *Broker) admitMCP(box string, x *exchange, t target, l *lease) (call, string) {
	x.mcp = &mcpExchange{b: b, meter: newMeter(Limits{})}
	if l == nil {
		token, _, code := b.authorise(box, t.token, t.grant)
		if token != nil {
			x.event.Bot, x.event.Conversation = token.bot, token.conversation
		}
		if code == "wrong_box" {
			b.stolen(box, token)
		}
		if code == "" { // no turn's token has such a grant
			code = "missing_grant"
		}
		return call{}, code
	}
	x.event.Bot, x.event.Conversation = l.talk.bot, l.talk.conversation
	server, use, code := b.use(l, box, t.grant)
	switch {
	case code == "wrong_box":
		b.stolenLease(box, l)
		fallthrough
	case code != "":
		return call{}, code
	}
	x.event.Grant = mcpPrefix + server.name
	x.mcp.lease, x.mcp.server, x.mcp.meter = l, server.name, use.meters[server.name]
	c := mcpCall{lease: l, server: server, use: use, target: t}
	switch sealed, ok := strings.CutPrefix(t.path, "/~"); {
	case !checkPath(t.path) || t.hasQuery && !checkQuery(t.query):
		return call{}, "bad_request"
	case !mcpMethods[x.r.Method]:
		return call{}, "method_refused"
	case ok:
		if c.endpoint = b.mcp.openEndpoint(l, server.name, sealed); c.endpoint == nil {
			return call{}, "bad_request"
		}
		x.mcp.stream = c.endpoint.Stream
	}
	return call{mcp: &c}, ""
}

// mcpBody is a message, counted and scanned while it is read.
type mcpBody struct {
	mu    sync.Mutex
	head  []byte
	rest  *upload // nil: head is all of it
	scan  rpcScan
	taken bool // the transport has no more say in it

	reserved int64 // of Broker.held
}

// readMCPBody keeps a message up to mcpBuffer, as long as there is memory left
// for what all boxes' requests hold.
func (b *Broker) readMCPBody(src *upload) (*mcpBody, error) {
	m := &mcpBody{}
	for {
		if b.held.Add(mcpStep) > heldBytes || len(m.head) >= mcpBuffer {
			b.held.Add(-mcpStep)
			m.rest = src
			return m, nil
		}
		m.reserved += mcpStep
		piece := io.LimitReader(src, mcpStep)
		begin := len(m.head)
		for {
			m.head = slices.Grow(m.head, mcpStep/8)
			n, err := piece.Read(m.head[len(m.head):cap(m.head)])
			m.head = m.head[:len(m.head)+n]
			if err == io.EOF {
				break
			}
			if err != nil {
				return m, err
			}
		}
		m.scan.Write(m.head[begin:])
		if len(m.head)-begin < mcpStep {
			return m, nil
		}
	}
}

// release gives the memory back, when the message will not be sent again.
func (m *mcpBody) release(b *Broker) {
	b.held.Add(-m.reserved)
	m.reserved, m.head = 0, nil
}

// Read gives the part that was not kept to the transport.
func (m *mcpBody) Read(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken {
		return 0, io.ErrClosedPipe
	}
	n, err := m.rest.Read(p)
	m.scan.Write(p[:n])
	return n, err
}

// finish reads what is left, for the calls in it.
func (m *mcpBody) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken = true
	if m.rest != nil {
		io.Copy(&m.scan, io.LimitReader(m.rest, rpcBodyMost))
		m.rest = nil
	}
}

// put gives the message to one request to the upstream.
func (m *mcpBody) put(out *http.Request, length int64) {
	if m.rest != nil {
		out.Body, out.ContentLength = io.NopCloser(io.MultiReader(bytes.NewReader(m.head), m)), length
		return
	}
	if len(m.head) == 0 {
		return
	}
	// The transport sends it again on a connection that was stale.
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(m.head)), nil }
	out.Body, _ = out.GetBody()
	out.ContentLength = int64(len(m.head))
}

// forwardMCP sends one request to a URL server and the answer back.
func (b *Broker) forwardMCP(x *exchange, c mcpCall) {
	m := c.use.meters[c.server.name]
	code, wait := m.begin(b.now())
	if code != "" {
		b.count("broker.limited")
		if wait > 0 {
			x.Header().Set("Retry-After", strconv.Itoa(wholeSeconds(wait)))
		}
		x.refuse(code)
		return
	}
	defer m.end()
	defer func() {
		x.event.Up = x.up.Load()
		if x.mcp.body != nil {
			x.mcp.body.release(b)
		}
	}()
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	defer context.AfterFunc(c.use.ctx, cancel)()
	if !x.readMessage(c, m) {
		return
	}
	if c.endpoint != nil && c.endpoint.Foreign != "" {
		x.mcp.target = c.endpoint.Foreign
		x.refuse("endpoint_foreign")
		return
	}
	headers := c.server.headers.Load()
	start := time.Now()
	res, from, code := x.ask(ctx, c, headers)
	x.event.Upstream = time.Since(start)
	switch {
	case code == "client_gone":
		x.event.Code, x.event.Status = code, 499
		panic(http.ErrAbortHandler)
	case code != "":
		x.refuse(code)
		return
	}
	defer res.Body.Close()
	if code := x.judge(res); code != "" {
		x.mcp.status = res.StatusCode
		x.refuse(code)
		return
	}
	b.note(c.lease, c.server.name, "")
	x.mcp.body.release(b) // the answer may last for hours
	x.relayMCP(ctx, res, c, from, headers)
	if x.event.Redacted > 0 {
		b.count("broker.redacted")
	}
}

// readMessage reads the box's message, or as much of it as is kept. false: it
// is answered.
func (x *exchange) readMessage(c mcpCall, m *meter) bool {
	if x.r.Method != "POST" {
		x.mcp.body = &mcpBody{}
		return true
	}
	src := &upload{body: x.r.Body, meter: m}
	x.up = &src.n
	body, err := x.mcp.b.readMCPBody(src)
	x.mcp.body = body
	if calls := body.scan.calls; len(calls) > 0 && mcpRoutes[calls[0].method] {
		x.event.Route = calls[0].method
	}
	switch {
	case src.over.Load():
		body.rest = nil
		x.refuse("limit_bytes")
		return false
	case err != nil:
		x.event.Code, x.event.Status = "client_gone", 499
		panic(http.ErrAbortHandler)
	}
	if body.rest != nil { // what is long may be answered before it ends
		http.NewResponseController(x).EnableFullDuplex()
	}
	return true
}

// ask sends the request, and again where the server's own origin points to.
func (x *exchange) ask(ctx context.Context, c mcpCall, headers *mcpHeaders) (*http.Response, *url.URL, string) {
	u := c.server.target(c.target)
	if c.endpoint != nil {
		if u = c.server.endpointURL(c.endpoint, c.target); u == nil {
			return nil, nil, "bad_request"
		}
	}
	for hop := 0; ; hop++ {
		out := c.server.request(ctx, x.r, u, headers)
		x.mcp.body.put(out, x.r.ContentLength)
		res, err := c.server.transport.RoundTrip(out)
		if errors.Is(err, errNoPlace) {
			return nil, nil, "upstream_refused"
		}
		if err != nil {
			return nil, nil, x.causeOf(err, &token{ctx: c.use.ctx})
		}
		switch res.StatusCode {
		case http.StatusMultipleChoices, http.StatusUseProxy, 306:
			res.Body.Close()
			x.mcp.target = "another address"
			return nil, nil, "upstream_redirect"
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		default:
			return res, u, ""
		}
		io.CopyN(io.Discard, res.Body, 64<<10) // or the connection is not used again
		res.Body.Close()
		next, foreign := follow(u, res.Header.Get("Location"))
		switch {
		case foreign != "":
			x.mcp.target = foreign
			return nil, nil, "upstream_redirect"
		case res.StatusCode < http.StatusTemporaryRedirect && x.r.Method != "GET":
			x.mcp.target = "another address of its own, with a status that drops the message"
			return nil, nil, "upstream_redirect"
		case hop == mcpHops:
			return nil, nil, "redirect_loop"
		case x.mcp.body.rest != nil:
			return nil, nil, "redirect_long"
		}
		u = next
	}
}

// judge finds the answers that are not passed on: challenges, which would start
// a sign-in that cannot work here and that engines write into their HOME, and
// a gateway's pages for people.
func (x *exchange) judge(res *http.Response) string {
	challenge := len(res.Header["Www-Authenticate"])+len(res.Header["Proxy-Authenticate"]) > 0
	kind := strings.ToLower(res.Header.Get("Content-Type"))
	switch {
	case res.StatusCode < 200:
		return "upstream_protocol"
	case res.StatusCode == http.StatusUnauthorized, res.StatusCode == http.StatusProxyAuthRequired,
		res.StatusCode == http.StatusForbidden && challenge:
		return "mcp_unauthorized"
	case res.StatusCode >= 500 && strings.HasPrefix(kind, "text/html"):
		return "upstream_failed"
	}
	return ""
}

// relayMCP passes an answer on as it comes.
func (x *exchange) relayMCP(ctx context.Context, res *http.Response, c mcpCall, from *url.URL, headers *mcpHeaders) {
	body, ok := inspectable(res)
	if !ok {
		x.refuse("upstream_encoding")
		return
	}
	events := strings.HasPrefix(strings.ToLower(strings.TrimSpace(res.Header.Get("Content-Type"))), "text/event-stream")
	h := x.Header()
	x.passHeaders(h, res.Header, responseDrops, headers.live)
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil
	}
	if res.ContentLength >= 0 && !events {
		h.Set("Content-Length", strconv.FormatInt(res.ContentLength, 10))
	}
	x.WriteHeader(res.StatusCode)
	var found atomic.Int64
	defer func() { x.event.Redacted += found.Load() }()
	stream := ""
	if events && x.r.Method == "GET" {
		stream = newStreamID()
		// In front of the redactor: a server whose address has its key in the path
		// names that path, and the box gets it sealed.
		body = &endpointReader{src: body, events: endpointEvents{rewrite: func(data string) string {
			return x.mcp.b.endpointFor(c, from, stream, data)
		}}}
	}
	body = headers.live.redactor.reader(body, &found)
	flow := download{meter: c.use.meters[c.server.name]}
	var err error
	if events {
		err = x.relayEvents(body, c, stream, flow)
	} else {
		err = x.stream(body, res.ContentLength < 0, flow)
	}
	if err == nil {
		return
	}
	x.event.Code = "upstream_cut"
	switch {
	case x.r.Context().Err() != nil:
		x.event.Code = "client_gone"
	case c.use.ctx.Err() != nil:
		x.event.Code = "token_revoked"
	}
	panic(http.ErrAbortHandler) // a broken body must not look like a finished one
}

// relayEvents is stream for server-sent events.
func (x *exchange) relayEvents(body io.Reader, c mcpCall, stream string, flow download) error {
	out := http.NewResponseController(x)
	if err := out.Flush(); err != nil {
		return err
	}
	events := newEventStream(func(p []byte) error {
		if _, err := x.Write(p); err != nil {
			return err
		}
		return out.Flush()
	}, x.mcp.b.quiet)
	defer events.close()
	if stream != "" {
		c.lease.streams.add(stream, events)
		defer c.lease.streams.remove(stream)
	}
	buffer := buffers.Get().(*[copyBuffer]byte)
	defer buffers.Put(buffer)
	for {
		n, err := body.Read(buffer[:])
		flow.pass(buffer[:n])
		if _, werr := events.Write(buffer[:n]); werr != nil {
			return werr
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
