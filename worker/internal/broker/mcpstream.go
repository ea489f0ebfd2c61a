package broker

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"time"
)

// eventEdge tells where one server-sent event ends and the next may begin.
// Lines end with LF, CR or both.
type eventEdge struct {
	inside bool // an event has a line
	text   bool // this line has a byte
	cr     bool // the line has ended with CR, and LF may belong to it
}

// open tells whether the place is inside of an event. Behind a CR it is not
// known yet.
func (e *eventEdge) open() bool { return e.inside || e.text || e.cr }

// next reads one byte.
func (e *eventEdge) next(c byte) {
	if c == '\n' && e.cr {
		e.cr = false
		return
	}
	e.cr = c == '\r'
	if c != '\n' && c != '\r' {
		e.text = true
		return
	}
	e.inside = e.text // a blank line ends the event
	e.text = false
}

// keepAliveAfter is how long a stream is quiet before a comment goes out on it.
// Clients give up a silent body after about five minutes (undici's
// bodyTimeout), and what is between must not make a server look dead that is
// only waiting.
const keepAliveAfter = 30 * time.Second

var keepAlive = []byte(": the stream is quiet\n\n")

// eventStream writes server-sent events, and puts our own between them: never
// into one that has begun.
type eventStream struct {
	mu      sync.Mutex
	out     func([]byte) error // writes and flushes
	edge    eventEdge
	waiting [][]byte // goes out where the open event ends
	timer   *time.Timer
	quiet   time.Duration
	closed  bool
}

func newEventStream(out func([]byte) error, quiet time.Duration) *eventStream {
	s := &eventStream{out: out, quiet: quiet}
	s.timer = time.AfterFunc(quiet, s.beat)
	return s
}

// Write passes on what the upstream sent.
func (s *eventStream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := 0
	for i, c := range p {
		if s.edge.next(c); len(s.waiting) > 0 && !s.edge.open() {
			if err := s.emit(p[from : i+1]); err != nil {
				return 0, err
			}
			from = i + 1
			if err := s.flush(); err != nil {
				return 0, err
			}
		}
	}
	s.timer.Reset(s.quiet)
	return len(p), s.emit(p[from:])
}

func (s *eventStream) emit(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	return s.out(p)
}

func (s *eventStream) flush() error {
	for len(s.waiting) > 0 {
		event := s.waiting[0]
		s.waiting = s.waiting[1:]
		if err := s.out(event); err != nil {
			return err
		}
	}
	return nil
}

// insert puts an event of ours in. false: the stream has ended.
func (s *eventStream) insert(event []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.waiting = append(s.waiting, event)
	return s.edge.open() || s.flush() == nil
}

func (s *eventStream) beat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if !s.edge.open() {
		s.out(keepAlive) // a client that is gone is found by the copy
	}
	s.timer.Reset(s.quiet)
}

// close is for the end of the exchange: nothing may be written after it.
func (s *eventStream) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.timer.Stop()
}

// endpointEvents rewrites the data of events called "endpoint", by which the
// transport of 2024-11-05 tells the client where to post. Every other byte
// passes as it is; an event waits until it is complete, as it would in any
// client. A comment waits for its line only: it may be all that a server sends
// for an hour.
type endpointEvents struct {
	rewrite func(data string) string
	edge    eventEdge
	held    []byte
	long    bool // this event is longer than any that we rewrite
}

const endpointEventMost = 16 << 10

// feed gives what may go out once p was read.
func (r *endpointEvents) feed(p []byte) []byte {
	var out []byte
	release := func() { out, r.held = append(out, r.event()...), r.held[:0] }
	for _, c := range p {
		if c != '\n' && r.edge.cr && !r.edge.inside { // a blank line that ended with CR alone
			release()
			r.long = false
		}
		r.held = append(r.held, c)
		r.edge.next(c)
		switch {
		case !r.edge.open():
			release()
			r.long = false
		case !r.edge.text && !r.edge.cr && !r.long && r.held[0] == ':':
			release()
			r.edge.inside = false // nothing of an event has come
		case len(r.held) >= endpointEventMost:
			r.long = true
			release()
		}
	}
	return out
}

// rest is what is held when the stream ends.
func (r *endpointEvents) rest() []byte { return r.event() }

func (r *endpointEvents) event() []byte {
	if r.long || len(r.held) == 0 {
		return r.held
	}
	var name string
	var data, others []string
	text := strings.TrimPrefix(string(r.held), "\ufeff")
	for _, line := range eventLines(text) {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			name = value
		case "data":
			data = append(data, value)
			continue
		}
		if line != "" {
			others = append(others, line)
		}
	}
	if name != "endpoint" || len(data) == 0 {
		return r.held
	}
	var b bytes.Buffer
	for _, line := range others {
		b.WriteString(line + "\n")
	}
	b.WriteString("data: " + r.rewrite(strings.Join(data, "\n")) + "\n\n")
	return b.Bytes()
}

// endpointReader is endpointEvents for a body that is read.
type endpointReader struct {
	src    io.Reader
	events endpointEvents
	ready  []byte
	err    error
}

func (r *endpointReader) Read(p []byte) (int, error) {
	for len(r.ready) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		var n int
		n, r.err = r.src.Read(p)
		r.ready = r.events.feed(p[:n])
		if r.err != nil {
			r.ready = append(r.ready, r.events.rest()...)
		}
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

func eventLines(text string) []string {
	return strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")
}
