package intercept

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

// handshake is how long a client may take for its part of it.
const handshake = 10 * time.Second

// Listener gives the broker the connections whose TLS it ended.
type Listener struct {
	hosts  map[string]bool
	config *tls.Config
	conns  chan net.Conn
	done   chan struct{}
	once   sync.Once
}

// Listen makes a listener that is known to the box as id.
func Listen(id *Identity) *Listener {
	hosts := map[string]bool{}
	for _, name := range id.hosts {
		hosts[name] = true
	}
	return &Listener{
		hosts: hosts,
		config: &tls.Config{
			Certificates:       []tls.Certificate{id.leaf},
			MinVersion:         tls.VersionTLS12,
			NextProtos:         []string{"http/1.1"},
			GetConfigForClient: sameName,
		},
		conns: make(chan net.Conn),
		done:  make(chan struct{}),
	}
}

// sameName refuses a client that asks for another host inside than the CONNECT
// named: the certificate would fit any declared one. A client that names none
// is taken at its CONNECT.
func sameName(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if c, ok := hello.Conn.(*replayed); !ok || hello.ServerName != "" && !strings.EqualFold(hello.ServerName, c.host) {
		return nil, errors.New("the client asks for another host than its CONNECT did")
	}
	return nil, nil
}

// Declares tells whether connections to a host are ended here.
func (l *Listener) Declares(host string) bool { return l != nil && l.hosts[host] }

// Accept waits for a connection. It is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. Connections that were handed over go on.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr is no address of the machine's.
func (l *Listener) Addr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "intercept" }
func (address) String() string  { return "intercept" }

// Hand ends the TLS of c, which the box opened to host, and hands it over.
// early is what came behind the CONNECT. It returns when the connection is
// closed, with the bytes that passed inside.
func (l *Listener) Hand(c gate.Stream, early []byte, host string) (up, down int64) {
	inner := tls.Server(&replayed{Stream: c, early: early, host: host}, l.config)
	c.SetDeadline(time.Now().Add(handshake))
	if err := inner.Handshake(); err != nil {
		return 0, 0
	}
	c.SetDeadline(time.Time{})
	conn := &Conn{Conn: inner, host: host, closed: make(chan struct{})}
	select {
	case l.conns <- conn:
		<-conn.closed
	case <-l.done:
		inner.Close()
	}
	return conn.up.Load(), conn.down.Load()
}

// Conn is a connection to a declared host without its TLS.
type Conn struct {
	*tls.Conn
	host     string
	up, down atomic.Int64
	once     sync.Once
	closed   chan struct{}
}

// DeclaredHost is the one that the CONNECT named.
func (c *Conn) DeclaredHost() string { return c.host }

func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.up.Add(int64(n))
	return n, err
}

func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.down.Add(int64(n))
	return n, err
}

// Close ends the connection and the Hand that brought it.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.closed) })
	return err
}

// replayed gives the bytes again that the gate has read already.
type replayed struct {
	gate.Stream
	early []byte
	host  string
}

func (r *replayed) Read(p []byte) (int, error) {
	if len(r.early) == 0 {
		return r.Stream.Read(p)
	}
	n := copy(p, r.early)
	r.early = r.early[n:]
	return n, nil
}
