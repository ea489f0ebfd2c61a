package broker

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// websocketRoute is a place where a provider speaks WebSocket.
type websocketRoute struct {
	provider, path string
	// orPOST: the same can be had by POST, and a client that is refused with
	// 426 goes on there at once. So every handshake that does not come about
	// ends with 426, whatever it failed of: the POST shows the cause.
	orPOST bool
	why    string
}

var websocketRoutes = []websocketRoute{
	{"openai", "/v1/responses", true, "Codex tries it before it posts"},
	{"gemini", "/ws/google.ai.generativelanguage.v1.GenerativeService.BidiGenerateContent", false, "Gemini Live"},
	{"gemini", "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent", false, "Gemini Live"},
	{"gemini", "/ws/google.ai.generativelanguage.v1alpha.GenerativeService.BidiGenerateContent", false, "Gemini Live"},
}

const (
	// connectBudget is what Codex waits for a WebSocket.
	connectBudget = 15 * time.Second
	// lingering is how long a client may take to answer the upstream's close.
	lingering = 2 * time.Second

	websocketGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11" // RFC 6455
)

// asksUpgrade: any upgrade, not only to WebSocket.
func asksUpgrade(r *http.Request) bool {
	return r.Header.Get("Upgrade") != "" || namesToken(r.Header["Connection"], "upgrade")
}

// offersUpgrade tells whether a request asks for a WebSocket, and may. A grant
// that counts requests or tokens offers none: one connection carries many
// requests, and compressed frames hide what they used.
func (g *grant) offersUpgrade(r *http.Request) bool {
	limits := g.meter.limits
	return r.Method == "GET" && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && len(r.Header["Upgrade"]) == 1 &&
		namesToken(r.Header["Connection"], "upgrade") && limits.PerMinute == 0 && limits.Tokens == 0
}

// upgrade finds the row for a handshake, or the code of its refusal.
func (g *grant) upgrade(r *http.Request, path string) (*websocketRoute, string) {
	if !g.offersUpgrade(r) {
		return nil, "upgrade_required"
	}
	for i := range websocketRoutes {
		row := &websocketRoutes[i]
		if row.provider != g.provider.name || !matchPath(row.path, g.provider.canonical(path)) {
			continue
		}
		return row, g.checkHandshake(r)
	}
	return nil, "upgrade_required"
}

// checkHandshake refuses what is no opening handshake (RFC 6455 §4.2.1).
func (g *grant) checkHandshake(r *http.Request) string {
	if !g.offersUpgrade(r) {
		return "upgrade_required"
	}
	nonce, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-Websocket-Key"))
	if err != nil || len(nonce) != 16 || r.Header.Get("Sec-Websocket-Version") != "13" || r.ContentLength != 0 {
		return "bad_request"
	}
	return ""
}

// tunnel brings a WebSocket about and passes its frames on until one side, or
// the token, ends.
func (b *Broker) tunnel(x *exchange, c call) {
	key := c.key
	res, cause := x.shakeHands(c, key)
	switch {
	case cause == "" && res.StatusCode == http.StatusSwitchingProtocols:
		defer res.Body.Close()
		b.pump(x, c, key, res)
	case c.websocket.orPOST:
		if cause == "" {
			res.Body.Close()
			cause = fmt.Sprintf("upstream_%d", res.StatusCode)
		}
		x.refuse("upgrade_required")
		x.event.Code = cause
	case cause != "":
		x.refuse(cause)
	default: // Gemini Live has no other way: its own answer says what is wrong
		defer res.Body.Close()
		defer context.AfterFunc(c.token.ctx, func() { res.Body.Close() })()
		x.answer(res, c, key)
	}
}

// shakeHands asks the upstream. cause is the code of what went wrong.
func (x *exchange) shakeHands(c call, key *liveKey) (res *http.Response, cause string) {
	ctx, cancel := context.WithCancel(x.r.Context())
	// Only until the answer: the transport gives the connection away with it.
	defer context.AfterFunc(c.token.ctx, cancel)()
	var late atomic.Bool
	budget := time.AfterFunc(connectBudget, func() { late.Store(true); cancel() })
	defer budget.Stop()
	start := time.Now()
	out := c.grant.request(ctx, x.r, c.target, nil, key)
	out.Header["Connection"], out.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	withoutKeys(out.Header)
	if c.grant.echoes {
		delete(out.Header, "Sec-Websocket-Extensions") // compressed frames could not be searched
	}
	res, err := c.grant.transport.RoundTrip(out)
	x.event.Upstream = time.Since(start)
	switch {
	case err != nil && late.Load():
		return nil, "upstream_timeout"
	case err != nil:
		return nil, x.causeOf(err, c.token)
	case res.StatusCode == http.StatusSwitchingProtocols && !agreed(x.r, res, c.grant.echoes):
		res.Body.Close()
		return nil, "upstream_protocol"
	}
	return res, ""
}

// agreed tells whether a 101 is the end of this very handshake.
func agreed(r *http.Request, res *http.Response, plain bool) bool {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + websocketGUID))
	_, duplex := res.Body.(io.ReadWriteCloser)
	return duplex && strings.EqualFold(res.Header.Get("Upgrade"), "websocket") &&
		res.Header.Get("Sec-Websocket-Accept") == base64.StdEncoding.EncodeToString(sum[:]) &&
		(!plain || res.Header.Get("Sec-Websocket-Extensions") == "")
}

// withoutKeys drops subprotocols that are credentials: browsers' WebSockets
// have no headers, so OpenAI takes a key there.
func withoutKeys(h http.Header) {
	const name = "Sec-Websocket-Protocol"
	if len(h[name]) == 0 {
		return
	}
	var kept []string
	for _, list := range h[name] {
		for part := range strings.SplitSeq(list, ",") {
			part = strings.TrimSpace(part)
			if !strings.Contains(part, "api-key") && !strings.Contains(part, tokenPrefix) {
				kept = append(kept, part)
			}
		}
	}
	delete(h, name)
	if len(kept) > 0 {
		h[name] = []string{strings.Join(kept, ", ")}
	}
}

// pump answers the box's handshake and passes bytes both ways. What the box
// sends goes out as it is, and so does what a vendor sends; what comes from an
// upstream that may echo is searched frame by frame.
func (b *Broker) pump(x *exchange, c call, key *liveKey, res *http.Response) {
	up := res.Body.(io.ReadWriteCloser)
	conn, buffered, err := http.NewResponseController(x).Hijack()
	if err != nil {
		panic(err) // our own server's connections can always be taken over
	}
	defer b.untrack(x.event.Box, conn)
	defer conn.Close()
	defer context.AfterFunc(c.token.ctx, func() { up.Close(); abort(conn) })()
	conn.SetDeadline(time.Time{})
	x.wrote, x.event.Status = true, http.StatusSwitchingProtocols
	h := http.Header{}
	x.passHeaders(h, res.Header, c.grant.responseDrops(), key)
	if err := writeHandshake(conn, h); err != nil {
		x.event.Code = "client_gone"
		return
	}
	early := make([]byte, buffered.Reader.Buffered())
	io.ReadFull(buffered.Reader, early)

	sent := make(chan upstreamEnd, 1)
	var boxFirst atomic.Bool
	go func() {
		end := upward(up, io.MultiReader(bytes.NewReader(early), conn), c.grant.meter)
		boxFirst.Store(true) // unless downward has ended before
		up.Close()
		sent <- end
	}()
	var found atomic.Int64
	n, err := downward(conn, up, c.grant, key, &found)
	first := boxFirst.Load()
	x.event.Down += n
	x.event.Redacted += found.Load()
	end := finish(conn, err, sent)
	x.event.Up = end.n
	switch {
	case end.err == errSpent:
		x.event.Code = "limit_bytes"
	case c.token.ctx.Err() != nil:
		x.event.Code = "token_revoked"
	case err != nil && !first:
		x.event.Code = "upstream_cut"
	case first && end.err != io.EOF:
		x.event.Code = "client_gone"
	}
}

// upstreamEnd is what became of the copy towards the upstream.
type upstreamEnd struct {
	n   int64
	err error
}

func writeHandshake(conn net.Conn, h http.Header) error {
	h.Set("Upgrade", "websocket")
	h.Set("Connection", "Upgrade")
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	h.Write(&head)
	head.WriteString("\r\n")
	_, err := conn.Write(head.Bytes())
	return err
}

// upward copies what the box sends, until it ends or its bytes are used up. When
// the upstream takes no more, the rest is read and thrown away: a connection
// that is closed with unread bytes is reset, and a reset can overtake what the
// box was told last.
func upward(up io.Writer, box io.Reader, m *meter) (end upstreamEnd) {
	buffer := buffers.Get().(*[copyBuffer]byte)
	defer buffers.Put(buffer)
	var broken error
	for {
		n, err := box.Read(buffer[:])
		if n > 0 && broken == nil {
			if !m.pass(n) {
				end.err = errSpent
				return end
			}
			end.n += int64(n)
			_, broken = up.Write(buffer[:n])
		}
		if err != nil {
			end.err = err
			return end
		}
	}
}

// downward copies what the upstream sends.
func downward(conn net.Conn, up io.Reader, g *grant, key *liveKey, found *atomic.Int64) (int64, error) {
	out := &countedWriter{w: conn, m: g.meter}
	if g.echoes {
		f := &frames{from: bufio.NewReaderSize(up, copyBuffer), to: out, redactor: key.redactor, found: found}
		err := f.pass()
		return out.n, err
	}
	buffer := buffers.Get().(*[copyBuffer]byte)
	defer buffers.Put(buffer)
	_, err := io.CopyBuffer(out, struct{ io.Reader }{up}, buffer[:])
	return out.n, err
}

// countedWriter counts what goes to the box. The limit is looked at when the
// next request begins: an answer that was paid for is passed whole.
type countedWriter struct {
	w io.Writer
	m *meter
	n int64
}

func (c *countedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.m.pass(n)
	return n, err
}

// finish ends the box's connection as the upstream ended its own: a clean end
// gives the box time to take the last bytes, and a break is a break.
func finish(conn net.Conn, err error, sent <-chan upstreamEnd) upstreamEnd {
	half, ok := conn.(interface{ CloseWrite() error })
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || !ok {
		abort(conn)
	} else {
		half.CloseWrite()
		conn.SetReadDeadline(time.Now().Add(lingering))
	}
	return <-sent
}

// abort resets a connection.
func abort(conn net.Conn) {
	if tcp, ok := underneath(conn).(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}
