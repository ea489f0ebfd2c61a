package broker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// upstreams are one grant's connections to its upstream.
//
// A request whose body is in memory, to an upstream without TLS, is sent and
// answered on the goroutine that serves the box, for net/http would hand it to
// three others, and each of these hand-overs wakes a thread: beside an upstream
// on this machine or next to it that is much of what the broker costs.
// Everything else is net/http's: TLS, HTTP/2, bodies that stream, upgrades.
type upstreams struct {
	*http.Transport
	mu       sync.Mutex
	idle     map[string][]*plainConn // by address, the latest used last
	sweeping bool
}

func newUpstreams(t *http.Transport) *upstreams {
	return &upstreams{Transport: t, idle: map[string][]*plainConn{}}
}

// plainConn is a connection to an upstream without TLS.
type plainConn struct {
	*net.TCPConn
	raw   syscall.RawConn
	left  int64     // bytes that an answer's head may still have
	since time.Time // it is idle
}

// plainBuffer is also what an open stream keeps in memory while it is quiet.
const plainBuffer = 8 << 10

var plainReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, plainBuffer) }}

var errLongHead = errors.New("the answer's head is too long")

// roundTrip sends one request. A body that is held goes out with its head.
func (g *grant) roundTrip(out *http.Request, h *held) (*http.Response, error) {
	if u, ok := g.transport.(*upstreams); ok && h != nil {
		if message := h.message(out); message != nil {
			defer h.wrote.Store(true) // nobody else has the memory then
			return u.exchange(out, message)
		}
	}
	h.give(out)
	return g.transport.RoundTrip(out)
}

// exchange sends a message that is whole and reads the answer's head.
func (u *upstreams) exchange(r *http.Request, message []byte) (*http.Response, error) {
	address := r.URL.Host
	if r.URL.Port() == "" {
		address = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	for {
		c, used, err := u.take(r.Context(), address)
		if err != nil {
			return nil, err
		}
		b := &plainBody{upstreams: u, address: address, conn: c}
		b.stop = context.AfterFunc(r.Context(), func() { c.Close() })
		sent, err := b.send(message)
		if err != nil && sent == 0 && used {
			// It was closed since it was looked at. Nothing went out, so
			// nothing is sent twice.
			b.Close()
			continue
		}
		if err == nil {
			err = b.readHead(r)
		}
		if err != nil {
			b.Close()
			return nil, err
		}
		return b.response, nil
	}
}

// take gives an idle connection that still stands, or a new one.
func (u *upstreams) take(ctx context.Context, address string) (c *plainConn, used bool, err error) {
	for {
		u.mu.Lock()
		all := u.idle[address]
		if len(all) == 0 {
			u.mu.Unlock()
			break
		}
		c, u.idle[address] = all[len(all)-1], all[:len(all)-1]
		u.mu.Unlock()
		if time.Since(c.since) < idleConn && c.silent() {
			return c, true, nil
		}
		c.Close()
	}
	conn, err := u.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, false, err
	}
	t, ok := conn.(*net.TCPConn)
	if !ok {
		conn.Close()
		return nil, false, errors.New("the upstream's connection is not TCP")
	}
	raw, err := t.SyscallConn()
	if err != nil {
		t.Close()
		return nil, false, err
	}
	return &plainConn{TCPConn: t, raw: raw}, false, nil
}

// silent tells whether an idle connection is open, with nothing to read: an
// answer that nobody asked for would be taken for the next one's.
func (c *plainConn) silent() bool {
	quiet := false
	err := c.raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = err == unix.EAGAIN
		return true
	})
	return err == nil && quiet
}

// keep makes c the one that is taken next.
func (u *upstreams) keep(address string, c *plainConn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.idle[address]) >= defaultConcurrent {
		c.Close()
		return
	}
	c.since = time.Now()
	u.idle[address] = append(u.idle[address], c)
	if !u.sweeping {
		u.sweeping = true
		time.AfterFunc(idleConn, u.sweep)
	}
}

// sweep closes what was idle for too long, and comes again while there is more.
func (u *upstreams) sweep() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for address, all := range u.idle {
		kept := slices.DeleteFunc(all, func(c *plainConn) bool {
			old := time.Since(c.since) >= idleConn
			if old {
				c.Close()
			}
			return old
		})
		if u.idle[address] = kept; len(kept) == 0 {
			delete(u.idle, address)
		}
	}
	if u.sweeping = len(u.idle) > 0; u.sweeping {
		time.AfterFunc(idleConn/4, u.sweep)
	}
}

// CloseIdleConnections closes net/http's, too.
func (u *upstreams) CloseIdleConnections() {
	u.Transport.CloseIdleConnections()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, all := range u.idle {
		for _, c := range all {
			c.Close()
		}
	}
	clear(u.idle)
}

// Read bounds what is read of an answer's head.
func (c *plainConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errLongHead
	}
	n, err := c.TCPConn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// plainBody is an answer's body, and its connection until it is closed.
type plainBody struct {
	io.ReadCloser // as net/http frames it; never closed, for that would read on
	upstreams     *upstreams
	address       string
	conn          *plainConn
	reader        *bufio.Reader
	response      *http.Response
	stop          func() bool // of what cuts the connection when the request is cancelled
	sent          atomic.Bool // the whole request
	ended         bool
}

// send writes without waiting. What the connection does not take at once is
// written beside the reading of the answer: an upstream may refuse a request
// before it has read it.
func (b *plainBody) send(message []byte) (n int, err error) {
	broken := b.conn.raw.Write(func(fd uintptr) bool {
		if n, err = unix.Write(int(fd), message); err != nil {
			n = 0 // -1
		}
		return true
	})
	switch {
	case broken != nil:
		return 0, broken
	case err != nil && err != unix.EAGAIN && err != unix.EINTR:
		return 0, err
	case n == len(message):
		b.sent.Store(true)
		return n, nil
	}
	rest := bytes.Clone(message[n:]) // the message's memory has another user soon
	go func() {
		if _, err := b.conn.Write(rest); err == nil {
			b.sent.Store(true)
		}
	}()
	return n, nil
}

const interimAnswers = 16

// readHead reads up to the final answer's head.
func (b *plainBody) readHead(r *http.Request) (err error) {
	b.reader = plainReaders.Get().(*bufio.Reader)
	b.reader.Reset(b.conn)
	b.conn.left = longestHead
	for range interimAnswers {
		if b.response, err = http.ReadResponse(b.reader, r); err != nil {
			return err
		}
		if status := b.response.StatusCode; status >= 200 || status == http.StatusSwitchingProtocols {
			b.conn.left = math.MaxInt64
			if b.response.Body == http.NoBody && status >= 200 {
				b.ended = true
				b.Close()
				return nil
			}
			b.ReadCloser, b.response.Body = b.response.Body, b
			return nil
		}
	}
	return errLongHead
}

// Read gives the connection back with the last byte: the client may be gone
// before the body is closed, and then everything of its request is cut.
func (b *plainBody) Read(p []byte) (int, error) {
	switch {
	case b.ended:
		return 0, io.EOF
	case b.stop == nil:
		return 0, net.ErrClosed
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.ended = true
		b.Close()
	}
	return n, err
}

// Close keeps the connection if both sides stand behind the answer.
func (b *plainBody) Close() error {
	if b.stop == nil {
		return nil // it was closed before
	}
	keep := b.stop() && b.ended && b.sent.Load() && !b.response.Close && b.response.StatusCode >= 200 && b.reader.Buffered() == 0
	b.stop = nil
	if b.reader != nil {
		b.reader.Reset(nil)
		plainReaders.Put(b.reader)
		b.reader = nil
	}
	if keep {
		b.upstreams.keep(b.address, b.conn)
		return nil
	}
	return b.conn.Close()
}

// plain tells whether a request may go without net/http's help.
func plain(r *http.Request) bool {
	return r.URL.Scheme == "http" && r.Header["Expect"] == nil && plainHost(r.URL)
}

// plainHost: net/http writes other hosts in another way than they stand here.
func plainHost(u *url.URL) bool {
	return !strings.ContainsFunc(u.Host, func(c rune) bool { return c <= ' ' || c > '~' || c == '%' })
}

// appendHead writes a request's head. false: it holds what no head may.
func appendHead(b []byte, r *http.Request, length int) ([]byte, bool) {
	b = append(append(append(b, r.Method...), ' '), r.URL.RequestURI()...)
	b = append(append(b, " HTTP/1.1\r\nHost: "...), r.URL.Host...)
	for name, values := range r.Header {
		for _, v := range values {
			if strings.ContainsAny(name, ": \t\r\n\x00") || strings.ContainsAny(v, "\r\n\x00") {
				return nil, false // net/http has looked, and so do we: the key stands in this head
			}
			b = append(append(append(append(b, "\r\n"...), name...), ": "...), v...)
		}
	}
	b = append(b, "\r\nContent-Length: "...)
	return append(strconv.AppendInt(b, int64(length), 10), "\r\n\r\n"...), true
}
