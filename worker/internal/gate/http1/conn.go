package http1

import (
	"bufio"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

const (
	readBuffer   = 8 << 10
	headDeadline = 10 * time.Second // from the accept, or a later head's first byte
	nextDeadline = time.Minute      // for the first byte of a next request
)

// An idle tunnel must not hold a read buffer, so they are pooled.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readBuffer) }}

func newReader(c io.Reader) *bufio.Reader {
	br := readers.Get().(*bufio.Reader)
	br.Reset(c)
	return br
}

func freeReader(br *bufio.Reader) {
	br.Reset(nil)
	readers.Put(br)
}

// Conn reads the requests of one client connection, one after another.
type Conn struct {
	Stream gate.Stream
	br     *bufio.Reader
	later  bool          // a request was read before
	limit  time.Duration // for a head
}

// NewConn reads from c. Free it in the end.
func NewConn(c gate.Stream) *Conn { return &Conn{Stream: c, br: newReader(c), limit: headDeadline} }

// Free gives the read buffer back. It may be called more than once.
func (c *Conn) Free() {
	if c.br != nil {
		freeReader(c.br)
		c.br = nil
	}
}

// Next reads a head. The refusal is for a client that broke the grammar or
// was too slow and can still be told; false is the end without a word.
func (c *Conn) Next() (*Request, *gate.Refusal, bool) {
	if c.later {
		c.Stream.SetReadDeadline(time.Now().Add(nextDeadline))
		if _, err := c.br.Peek(1); err != nil {
			return nil, nil, false
		}
	}
	c.later = true
	c.Stream.SetReadDeadline(time.Now().Add(c.limit))
	req, err := ReadRequest(c.br)
	if err == nil {
		c.Stream.SetReadDeadline(time.Time{})
		return req, nil, true
	}
	if r := (*gate.Refusal)(nil); errors.As(err, &r) {
		return nil, r, true
	}
	if gate.Timeout(err) {
		return nil, &gate.Refusal{Status: 408, Class: "slow", Reason: "the request head did not come in time", Hint: "Send the whole head at once.", ProxyStatus: "http_request_error"}, true
	}
	return nil, nil, false
}

// Flush passes on to dst what was read behind the head, and frees the buffer:
// bytes that a client sends right behind a CONNECT belong to its tunnel.
func (c *Conn) Flush(dst io.Writer) (int, error) {
	n, err := flush(dst, c.br)
	c.Free()
	return n, err
}

// Early gives what was read behind the head, and frees the buffer.
func (c *Conn) Early() []byte {
	early := make([]byte, c.br.Buffered())
	io.ReadFull(c.br, early) // it is all there
	c.Free()
	return early
}
