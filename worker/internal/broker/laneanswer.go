package broker

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// laneBody is the body of a request on the lane. Whoever reads it last does so
// before the answer is over, or finds it closed.
type laneBody struct {
	conn   net.Conn
	mu     sync.Mutex // held while somebody waits for the client's bytes
	from   *bufio.Reader
	left   int64
	failed bool
	closed bool
}

func (b *laneBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return 0, http.ErrBodyReadAfterClose
	case b.left == 0:
		return 0, io.EOF
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	if b.left -= int64(n); err != nil {
		b.failed = true
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// Close ends a read that is going on, and the connection with it.
func (b *laneBody) Close() error {
	if !b.mu.TryLock() {
		b.conn.SetReadDeadline(time.Unix(1, 0))
		b.mu.Lock()
	}
	b.closed = true
	b.mu.Unlock()
	return nil
}

// end tells whether all of it was read.
func (b *laneBody) end() bool {
	if !b.mu.TryLock() {
		return false
	}
	defer b.mu.Unlock()
	return b.left == 0
}

// drain reads what nobody wanted: a connection that is closed with something
// unread takes the answer down with it. Where somebody does read, an upstream
// has answered early, and the answer must not wait.
func (b *laneBody) drain() (whole bool) {
	if !b.mu.TryLock() {
		return false
	}
	defer b.mu.Unlock()
	b.closed = true
	if b.left == 0 || b.failed {
		return !b.failed
	}
	b.conn.SetReadDeadline(time.Now().Add(headWait))
	n, err := io.CopyN(io.Discard, b.from, b.left)
	b.conn.SetReadDeadline(time.Time{})
	b.left -= n
	return err == nil
}

// laneAnswer writes an answer on the lane: with its length where that is told
// or all of it is there, in chunks otherwise.
type laneAnswer struct {
	conn    net.Conn
	body    *laneBody
	header  http.Header
	status  int
	begun   bool // the head is in out
	chunked bool
	left    int64  // bytes that the told length still wants
	ends    bool   // the connection
	out     []byte // to be written: the head, and what follows it
	text    []byte // of the body, before the head is made
	err     error
}

const laneBuffer = 4 << 10

func (w *laneAnswer) Header() http.Header { return w.header }

func (w *laneAnswer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *laneAnswer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	switch {
	case w.err != nil:
		return 0, w.err
	case !w.begun:
		w.text = append(w.text, p...)
		if len(w.text) > laneBuffer {
			w.begin(-1)
		}
	default:
		w.append(p)
		if len(w.out) > laneBuffer {
			w.send()
		}
	}
	return len(p), w.err
}

// begin makes the head. length is the body's where no more comes.
func (w *laneAnswer) begin(length int64) {
	w.begun = true
	w.WriteHeader(http.StatusOK)
	if !w.body.drain() {
		w.ends = true
	}
	bodyless := w.status < 200 || w.status == http.StatusNoContent || w.status == http.StatusNotModified
	told, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64)
	switch {
	case bodyless:
		w.header.Del("Content-Length")
	case err == nil:
		w.left = told
	case length >= 0:
		w.left = length
		w.header["Content-Length"] = []string{strconv.FormatInt(length, 10)}
	default:
		w.chunked = true
		w.header["Transfer-Encoding"] = []string{"chunked"}
	}
	w.ends = w.ends || w.header.Get("Connection") == "close"
	if w.ends {
		w.header["Connection"] = []string{"close"}
	}
	if w.header["Date"] == nil {
		w.header["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	}
	w.out = append(w.out, "HTTP/1.1 "+strconv.Itoa(w.status)+" "+http.StatusText(w.status)+"\r\n"...)
	w.header.Write((*appender)(&w.out)) // without line breaks, whatever is in it
	w.out = append(w.out, "\r\n"...)
	text := w.text
	w.text = nil
	w.append(text)
}

// append puts a part of the body behind what is to be written.
func (w *laneAnswer) append(p []byte) {
	switch {
	case len(p) == 0:
	case w.chunked:
		w.out = append(strconv.AppendInt(w.out, int64(len(p)), 16), "\r\n"...)
		w.out = append(append(w.out, p...), "\r\n"...)
	case int64(len(p)) > w.left:
		w.err = http.ErrContentLength
	default:
		w.left -= int64(len(p))
		w.out = append(w.out, p...)
	}
}

func (w *laneAnswer) send() {
	if w.err == nil && len(w.out) > 0 {
		_, w.err = w.conn.Write(w.out)
	}
	w.out = w.out[:0]
}

// FlushError is for http.ResponseController.
func (w *laneAnswer) FlushError() error {
	if !w.begun {
		w.begin(-1)
	}
	w.send()
	return w.err
}

// finish ends the answer, and tells whether the connection stands at the next
// request.
func (w *laneAnswer) finish() bool {
	if !w.begun {
		w.begin(int64(len(w.text)))
	}
	if w.chunked {
		w.out = append(w.out, "0\r\n\r\n"...)
	}
	w.send()
	return w.err == nil && w.left == 0 && !w.ends && w.body.end()
}

type appender []byte

func (a *appender) Write(p []byte) (int, error) {
	*a = append(*a, p...)
	return len(p), nil
}
