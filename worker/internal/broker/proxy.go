package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// copyBuffer is small: each open stream has one, and most are quiet.
	copyBuffer  = 8 << 10
	longestHead = 256 << 10 // of an answer
	// idleConn is below the minute after which load balancers close idle
	// connections: a POST on a stale one cannot be sent again.
	idleConn = 55 * time.Second
)

// errSpent: the grant's limit of bytes. A body has no cap of its own, for it
// streams through and costs us no memory; engines send the whole history each
// time, and every cap that a proxy had killed long conversations for good.
var errSpent = errors.New("the grant's bytes are used up")

var buffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// newTransport is one grant's own pool of connections to its upstream. It
// follows no redirect and knows no proxy: the environment of the worker has no
// say in where keys go.
func newTransport() *http.Transport {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	return &http.Transport{
		Proxy:                 nil,
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       idleConn,
		MaxIdleConnsPerHost:   defaultConcurrent, // fewer, and a busy turn would dial for most requests
		// The client's Accept-Encoding goes out as it is and the body comes back
		// as it is.
		DisableCompression: true,
		ForceAttemptHTTP2:  true, // a DialContext of one's own turns it off
		// There is no total timeout, so a dead connection must be found by asking.
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		MaxResponseHeaderBytes: longestHead,
		ReadBufferSize:         plainBuffer,
	}
}

// forward sends one request to the grant's upstream and the answer back.
func (b *Broker) forward(x *exchange, c call) {
	code, wait := c.grant.meter.begin(b.now())
	if code != "" {
		b.count("broker.limited")
		if wait > 0 {
			x.Header().Set("Retry-After", strconv.Itoa(wholeSeconds(wait)))
		}
		x.refuse(code)
		return
	}
	defer c.grant.meter.end()
	if c.key, code = c.grant.current(x.r.Context()); code != "" {
		b.count("broker.refused")
		x.refuse(code)
		return
	}
	if c.websocket != nil {
		b.tunnel(x, c)
	} else {
		b.request(x, c)
	}
	if x.event.Redacted > 0 {
		b.count("broker.redacted")
	}
}

// request is one that is no WebSocket.
func (b *Broker) request(x *exchange, c call) {
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	defer context.AfterFunc(c.token.ctx, cancel)()
	body := &upload{body: x.r.Body, meter: c.grant.meter}
	// The transport may go on reading after RoundTrip; net/http must not, once
	// this function is over.
	defer body.Close()
	// Otherwise the first byte of an answer closes the request's body, and an
	// upload that the upstream answered early takes the answer down with it.
	http.NewResponseController(x).EnableFullDuplex()
	defer func() { x.event.Up = body.n.Load() }()
	x.up = &body.n

	held, err := b.hold(x.r.ContentLength, body)
	if err != nil {
		x.failed(err, body, c.token)
		return
	}
	defer held.release(b)
	key := c.key
	out := c.grant.request(held.watch(ctx), x.r, c.target, body, key)
	start := time.Now()
	res, err := c.grant.roundTrip(out, held)
	x.event.Upstream = time.Since(start)
	if err != nil {
		x.failed(err, body, c.token)
		return
	}
	held.answered(b)
	defer res.Body.Close()
	x.answer(res, c, key)
}

// answer passes on what may be passed on of the upstream's response.
func (x *exchange) answer(res *http.Response, c call, key *liveKey) {
	if c.grant.login != nil && res.StatusCode == http.StatusUnauthorized {
		c.grant.login.Reject(key.secret) // an engine that asks again gets a new one
	}
	switch {
	case res.StatusCode < 200:
		x.refuse("upstream_protocol")
	case res.StatusCode >= 300 && res.StatusCode < 400 && res.StatusCode != http.StatusNotModified && c.grant.host == "":
		x.refuse("upstream_redirect")
	default:
		x.relay(res, c.grant, key)
	}
}

// request makes the upstream's request. Host, path and key come from the
// grant; only what is below the grant comes from the box.
func (g *grant) request(ctx context.Context, r *http.Request, t target, body io.ReadCloser, key *liveKey) *http.Request {
	if g.host != "" {
		return g.swapped(ctx, r, t, body, key)
	}
	u := *g.base
	u.RawPath = g.provider.join(g.base.EscapedPath(), t.path)
	u.Path, _ = url.PathUnescape(u.RawPath) // checkPath has tried it
	query := stripQuery(t.query)
	u.ForceQuery = g.base.ForceQuery || t.hasQuery && t.query == ""
	if u.RawQuery != "" && query != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += query

	h := http.Header{}
	pass(h, r.Header, requestDrops)
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // otherwise net/http writes its own
	}
	if g.inspects() {
		h["Accept-Encoding"] = []string{"identity"}
	}
	g.inject(h, key)
	return g.send(ctx, r, &u, h, body)
}

// send frames a request for the upstream.
func (g *grant) send(ctx context.Context, r *http.Request, u *url.URL, h http.Header, body io.ReadCloser) *http.Request {
	out := &http.Request{
		Method: r.Method, URL: u, Header: h,
		Body: body, ContentLength: r.ContentLength,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if r.ContentLength == 0 {
		out.Body = http.NoBody // or it would be sent chunked
	}
	return out.WithContext(ctx)
}

// failed answers for an upstream that gave no response.
func (x *exchange) failed(err error, body *upload, t *token) {
	cause := x.causeOf(err, t)
	switch {
	case body.over.Load():
		x.refuse("limit_bytes")
	case cause == "client_gone" || cause != "token_revoked" && body.broken.Load():
		x.event.Code, x.event.Status = "client_gone", 499
		panic(http.ErrAbortHandler)
	default:
		x.refuse(cause)
	}
}

// causeOf gives the code for an error of the transport's. Nothing of its text
// is used: a resolver's or a dialler's names addresses.
func (x *exchange) causeOf(err error, t *token) string {
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case t.ctx.Err() != nil:
		return "token_revoked"
	case x.r.Context().Err() != nil:
		return "client_gone"
	case errors.As(err, &dns):
		return "upstream_name"
	case errors.As(err, &cert), errors.As(err, &record):
		return "upstream_tls"
	}
	return "upstream_unreachable"
}

// passHeaders copies what may cross, with the key overwritten.
func (x *exchange) passHeaders(dst, src http.Header, drops headerSet, key *liveKey) {
	pass(dst, src, drops)
	for _, values := range dst {
		for i, v := range values {
			clean, n := key.redactor.text(v)
			values[i] = clean
			x.event.Redacted += int64(n)
		}
	}
}

// relay passes a response on, each read at once: engines show tokens as they
// come.
func (x *exchange) relay(res *http.Response, g *grant, key *liveKey) {
	body := io.Reader(res.Body)
	if g.inspects() {
		var ok bool
		if body, ok = inspectable(res); !ok {
			x.refuse("upstream_encoding")
			return
		}
	}
	h := x.Header()
	x.passHeaders(h, res.Header, g.responseDrops(), key)
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // otherwise net/http guesses one
	}
	if res.ContentLength >= 0 {
		h.Set("Content-Length", strconv.FormatInt(res.ContentLength, 10))
	}
	x.WriteHeader(res.StatusCode)
	var found atomic.Int64
	defer func() { x.event.Redacted += found.Load() }()
	if g.echoes {
		body = key.redactor.reader(body, &found)
	}
	flow := download{meter: g.meter}
	if g.meter.limits.Tokens > 0 && x.r.Method == "POST" && res.StatusCode < 300 {
		flow.usage = newUsage(res.Header.Get("Content-Type"))
	}
	err := x.stream(body, res.ContentLength < 0, flow)
	if flow.usage != nil {
		x.event.Tokens = spentTokens(flow.usage, err == nil, x.up.Load()+x.event.Down)
		g.meter.spend(x.event.Tokens)
	}
	if err != nil {
		x.event.Code = "upstream_cut"
		if x.r.Context().Err() != nil {
			x.event.Code = "client_gone"
		}
		// A broken body must not look like a finished one.
		panic(http.ErrAbortHandler)
	}
}

// bytesPerToken is a guess for answers that tell no usage, or were cut before
// they did: otherwise a box would spend nothing by closing early.
const bytesPerToken = 4

func spentTokens(u *usage, complete bool, bytes int64) int64 {
	told, whole := u.total()
	if complete && whole {
		return told
	}
	return max(told, bytes/bytesPerToken)
}

// download is what is done with a response's bytes while they pass.
type download struct {
	meter *meter
	usage *usage // nil where nobody counts tokens
}

func (d download) pass(b []byte) {
	d.meter.pass(len(b)) // looked at when the next request begins
	if d.usage != nil {
		d.usage.read(b)
	}
}

// stream copies with a flush after every read; early also sends the header
// before the first byte, which may be minutes away.
func (x *exchange) stream(body io.Reader, early bool, flow download) error {
	out := http.NewResponseController(x)
	if early {
		out.Flush()
	}
	buffer := buffers.Get().(*[copyBuffer]byte)
	defer buffers.Put(buffer)
	for {
		n, err := body.Read(buffer[:])
		if n > 0 {
			flow.pass(buffer[:n])
			if _, werr := x.Write(buffer[:n]); werr != nil {
				return werr
			}
			if werr := out.Flush(); werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// upload is a request body, counted. The transport reads it from a goroutine
// of its own.
type upload struct {
	body   io.ReadCloser
	meter  *meter
	n      atomic.Int64
	over   atomic.Bool // the grant's bytes are used up
	broken atomic.Bool // the box stopped in the middle
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.body.Read(p)
	u.n.Add(int64(n))
	if !u.meter.pass(n) {
		u.over.Store(true)
		return 0, errSpent
	}
	if err != nil && err != io.EOF && err != http.ErrBodyReadAfterClose {
		u.broken.Store(true)
	}
	return n, err
}

func (u *upload) Close() error { return u.body.Close() }
