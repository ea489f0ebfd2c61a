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
	// bodyBytes caps a request body. Engines send the whole history each time,
	// and a cap below the vendors' 32 MB kills long conversations for good.
	bodyBytes  = 64 << 20
	copyBuffer = 32 << 10
)

var errTooLarge = errors.New("the body is over the cap")

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
		// Below the minute after which load balancers close idle connections: a
		// POST on a stale one cannot be sent again.
		IdleConnTimeout:     55 * time.Second,
		MaxIdleConnsPerHost: 8,
		// The client's Accept-Encoding goes out as it is and the body comes back
		// as it is.
		DisableCompression: true,
		ForceAttemptHTTP2:  true, // a DialContext of one's own turns it off
		// There is no total timeout, so a dead connection must be found by asking.
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		MaxResponseHeaderBytes: 256 << 10,
		ReadBufferSize:         copyBuffer,
		WriteBufferSize:        copyBuffer,
	}
}

// forward sends one request to the grant's upstream and the answer back.
func (b *Broker) forward(x *exchange, c call) {
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	defer context.AfterFunc(c.token.ctx, cancel)()
	body := &upload{body: x.r.Body}
	// The transport may go on reading after RoundTrip; net/http must not, once
	// this function is over.
	defer body.Close()
	defer func() { x.event.Up = body.n.Load() }()

	start := time.Now()
	res, err := c.grant.transport.RoundTrip(c.grant.request(ctx, x.r, c.target, body))
	x.event.Upstream = time.Since(start)
	if err != nil {
		x.failed(err, body, c.token)
		return
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode < 200:
		x.refuse("upstream_protocol")
	case res.StatusCode >= 300 && res.StatusCode < 400 && res.StatusCode != http.StatusNotModified:
		x.refuse("upstream_redirect")
	default:
		x.relay(res, c.grant)
	}
	if x.event.Redacted > 0 {
		b.count("broker.redacted")
	}
}

// request makes the upstream's request. Host, path and key come from the
// grant; only what is below the grant comes from the box.
func (g *grant) request(ctx context.Context, r *http.Request, t target, body *upload) *http.Request {
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
	g.inject(h)
	out := &http.Request{
		Method: r.Method, URL: &u, Header: h,
		Body: body, ContentLength: r.ContentLength,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if r.ContentLength == 0 {
		out.Body = http.NoBody // or it would be sent chunked
	}
	return out.WithContext(ctx)
}

// failed answers for an upstream that gave no response. The text names no
// address: a resolver's or a dialler's error does.
func (x *exchange) failed(err error, body *upload, t *token) {
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case body.over.Load():
		x.refuse("too_large")
	case t.ctx.Err() != nil:
		x.refuse("token_revoked")
	case x.r.Context().Err() != nil || body.broken.Load():
		x.event.Code, x.event.Status = "client_gone", 499
		panic(http.ErrAbortHandler)
	case errors.As(err, &dns):
		x.refuse("upstream_name")
	case errors.As(err, &cert), errors.As(err, &record):
		x.refuse("upstream_tls")
	default:
		x.refuse("upstream_unreachable")
	}
}

// relay passes a response on, each read at once: engines show tokens as they
// come.
func (x *exchange) relay(res *http.Response, g *grant) {
	var found atomic.Int64
	defer func() { x.event.Redacted = found.Load() }()
	h := x.Header()
	pass(h, res.Header, responseDrops)
	for _, values := range h {
		for i, v := range values {
			clean, n := g.redactor.text(v)
			values[i] = clean
			found.Add(int64(n))
		}
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // otherwise net/http guesses one
	}
	if res.ContentLength >= 0 {
		h.Set("Content-Length", strconv.FormatInt(res.ContentLength, 10))
	}
	x.WriteHeader(res.StatusCode)
	var body io.Reader = res.Body
	if encoding := res.Header.Get("Content-Encoding"); g.scanBody && (encoding == "" || encoding == "identity") {
		body = g.redactor.reader(body, &found)
	}
	if err := x.stream(body, res.ContentLength < 0); err != nil {
		x.event.Code = "upstream_cut"
		if x.r.Context().Err() != nil {
			x.event.Code = "client_gone"
		}
		// A broken body must not look like a finished one.
		panic(http.ErrAbortHandler)
	}
}

// stream copies with a flush after every read; early also sends the header
// before the first byte, which may be minutes away.
func (x *exchange) stream(body io.Reader, early bool) error {
	out := http.NewResponseController(x)
	if early {
		out.Flush()
	}
	buffer := buffers.Get().(*[copyBuffer]byte)
	defer buffers.Put(buffer)
	for {
		n, err := body.Read(buffer[:])
		if n > 0 {
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

// upload is a request body with a cap, counted. The transport reads it from a
// goroutine of its own.
type upload struct {
	body   io.ReadCloser
	n      atomic.Int64
	over   atomic.Bool // more than the cap
	broken atomic.Bool // the box stopped in the middle
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.body.Read(p)
	if u.n.Add(int64(n)) > bodyBytes {
		u.over.Store(true)
		return 0, errTooLarge
	}
	if err != nil && err != io.EOF && err != http.ErrBodyReadAfterClose {
		u.broken.Store(true)
	}
	return n, err
}

func (u *upload) Close() error { return u.body.Close() }
