package broker

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	headWait = 10 * time.Second // for a request's head, from its first byte or the accept
	idleWait = 2 * time.Minute  // for a next request
	// slowAnswer is when somebody looks whether the client still waits. Before
	// that a request needs no second goroutine.
	slowAnswer = 50 * time.Millisecond
)

// lane is a box's listener on which requests of one plain form are served
// without net/http's server: a POST to a provider, with a short body whose
// length is told, whole in its first read up to the body. They are almost all
// that an engine sends, and net/http starts a goroutine for each, which wakes a
// thread while the upstream could run.
//
// Whatever has another form, or could be read in two ways, goes to net/http from
// its first byte on, and so does what follows on its connection: the lane
// refuses nothing, judges nothing, and knows no rule that net/http has not.
type lane struct {
	net.Listener
	broker *Broker
	box    string
	handle http.Handler
	given  chan net.Conn // to net/http
	over   chan struct{}
	failed error // of accept; read once over is closed
	once   sync.Once

	mu    sync.Mutex
	conns map[net.Conn]bool // that the lane serves; nil once it is closed
}

func newLane(b *Broker, l net.Listener, box string, h http.Handler) *lane {
	n := &lane{Listener: l, broker: b, box: box, handle: h, given: make(chan net.Conn), over: make(chan struct{}), conns: map[net.Conn]bool{}}
	go n.accept()
	return n
}

func (n *lane) accept() {
	for {
		c, err := n.Listener.Accept()
		if err != nil {
			if t, ok := err.(interface{ Temporary() bool }); ok && t.Temporary() {
				time.Sleep(10 * time.Millisecond) // net/http's server does the same
				continue
			}
			n.end(err)
			return
		}
		t, ok := c.(*net.TCPConn)
		if !ok {
			n.give(c)
			continue
		}
		n.broker.track(n.box, c, http.StateNew)
		if n.enter(c) {
			go n.serve(t)
		}
	}
}

// Accept gives net/http the connections that are its.
func (n *lane) Accept() (net.Conn, error) {
	select {
	case c := <-n.given:
		return c, nil
	case <-n.over:
		return nil, n.failed
	}
}

// Close ends the lane's own connections, too.
func (n *lane) Close() error {
	err := n.Listener.Close()
	n.end(net.ErrClosed)
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.Close()
	}
	n.conns = nil
	return err
}

func (n *lane) end(err error) { n.once.Do(func() { n.failed = err; close(n.over) }) }

func (n *lane) enter(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conns == nil {
		c.Close()
		n.broker.untrack(n.box, c)
		return false
	}
	n.conns[c] = true
	return true
}

func (n *lane) leave(c net.Conn) {
	n.mu.Lock()
	delete(n.conns, c)
	n.mu.Unlock()
}

func (n *lane) give(c net.Conn) {
	select {
	case n.given <- c:
	case <-n.over:
		c.Close()
		n.broker.untrack(n.box, c)
	}
}

// serve answers the requests of one connection until one is not the lane's.
func (n *lane) serve(c *net.TCPConn) {
	br := laneReaders.Get().(*bufio.Reader)
	br.Reset(c)
	ours := true
	defer func() {
		n.leave(c)
		if ours {
			c.Close()
			n.broker.untrack(n.box, c)
		} else {
			early, _ := br.Peek(br.Buffered())
			c.SetReadDeadline(time.Time{})
			n.give(&earlyConn{c, bytes.Clone(early)})
		}
		br.Reset(nil)
		laneReaders.Put(br)
	}()
	for wait := headWait; ; wait = idleWait {
		c.SetReadDeadline(time.Now().Add(wait))
		if _, err := br.Peek(1); err != nil {
			return
		}
		head, _ := br.Peek(br.Buffered())
		if ours = laneForm(head); !ours {
			return
		}
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		c.SetReadDeadline(time.Time{})
		if !n.answer(c, br, r) {
			return
		}
	}
}

// answer has one request answered, and tells whether another may follow.
func (n *lane) answer(c *net.TCPConn, br *bufio.Reader, r *http.Request) (again bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	body := &laneBody{conn: c, from: br, left: r.ContentLength}
	r.Body, r.RemoteAddr = body, c.RemoteAddr().String()
	w := &laneAnswer{conn: c, body: body, header: http.Header{}}
	look := watchClient(c, body, cancel)
	defer func() {
		look.stop()
		if recover() != nil { // http.ErrAbortHandler: answer has told of anything else
			again = false
		}
	}()
	n.handle.ServeHTTP(w, r.WithContext(ctx))
	return w.finish() && !r.Close
}

// lookout ends a request whose client has closed the connection, if the answer
// takes its time.
type lookout struct {
	conn  *net.TCPConn
	timer *time.Timer
	mu    sync.Mutex
	over  bool
	done  chan struct{} // closed when nobody looks any more; nil before somebody does
}

func watchClient(c *net.TCPConn, body *laneBody, cancel func()) *lookout {
	l := &lookout{conn: c}
	l.mu.Lock() // until there is a timer
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(slowAnswer, func() {
		l.mu.Lock()
		switch {
		case l.over:
			l.mu.Unlock()
			return
		case !body.end(): // then it is read, and whoever reads it sees the end
			l.timer.Reset(slowAnswer)
			l.mu.Unlock()
			return
		}
		l.done = make(chan struct{})
		l.mu.Unlock()
		defer close(l.done)
		if gone(c) {
			cancel()
		}
	})
	return l
}

func (l *lookout) stop() {
	l.mu.Lock()
	l.over = true
	l.timer.Stop()
	done := l.done
	l.mu.Unlock()
	if done != nil {
		l.conn.SetReadDeadline(time.Unix(1, 0))
		<-done
		l.conn.SetReadDeadline(time.Time{})
	}
}

// gone waits until the client closes its connection, or sends something. It
// takes nothing away.
func gone(c *net.TCPConn) (closed bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err == unix.EAGAIN || err == unix.EINTR {
			return false
		}
		closed = err != nil || n == 0
		return true
	})
	return closed
}

var laneReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

// earlyConn is a connection of which something was read.
type earlyConn struct {
	*net.TCPConn
	early []byte
}

func (c *earlyConn) Read(p []byte) (int, error) {
	if len(c.early) == 0 {
		return c.TCPConn.Read(p)
	}
	n := copy(p, c.early)
	c.early = c.early[n:]
	return n, nil
}

// underneath is the connection that was accepted.
func underneath(c net.Conn) net.Conn {
	if e, ok := c.(*earlyConn); ok {
		return e.TCPConn
	}
	return c
}

// laneForm tells whether what was read begins with a head of the lane's form.
func laneForm(read []byte) bool {
	end := bytes.Index(read, []byte("\r\n\r\n"))
	if end < 0 {
		return false
	}
	lines := strings.Split(string(read[:end]), "\r\n")
	if len(lines) > headerFields || !laneLine(lines[0]) {
		return false
	}
	hosts, lengths := 0, 0
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !laneName(name) || !visible(value) {
			return false
		}
		value = strings.Trim(value, " \t")
		switch strings.ToLower(name) {
		case "host":
			hosts++
			if value == "" || strings.ContainsAny(value, " \t,/@?#") {
				return false
			}
		case "content-length":
			lengths++
			if n, err := strconv.ParseUint(value, 10, 32); err != nil || n == 0 || n > heldBody || value[0] == '+' {
				return false
			}
		case "connection":
			if !strings.EqualFold(value, "keep-alive") {
				return false
			}
		case "transfer-encoding", "expect", "upgrade", "te", "trailer", "keep-alive", "proxy-connection", "http2-settings":
			return false
		}
	}
	return hosts == 1 && lengths == 1
}

// laneLine: a POST to a provider's grant.
func laneLine(line string) bool {
	method, rest, _ := strings.Cut(line, " ")
	uri, version, _ := strings.Cut(rest, " ")
	if method != "POST" || version != "HTTP/1.1" || !visible(uri) {
		return false
	}
	t, ok := splitTarget(uri)
	if !ok || !tokenForm(t.token) || !checkPath(t.path) || !checkQuery(t.query) {
		return false
	}
	_, known := providerNamed(t.grant)
	return known
}

// laneName: a field's name as all of them are written.
func laneName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return name != ""
}

// visible: printable ASCII, blanks and tabs.
func visible(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' || c > '~') && c != '\t' {
			return false
		}
	}
	return true
}
