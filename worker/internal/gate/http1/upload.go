package http1

import (
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// upload sends a request's body while the answer is awaited: an upstream may
// answer before it has read everything, and a client may go on sending after
// the answer began.
type upload struct {
	goAhead  chan struct{} // one token: the upstream said 100, or it is over
	done     chan struct{}
	consumed atomic.Bool // the client has sent its whole body
	sent     int64       // valid once done is closed
	err      error
}

func (x *Exchange) startUpload(b *body) *upload {
	up := &upload{goAhead: make(chan struct{}, 1), done: make(chan struct{})}
	if !b.framing.hasBody() {
		up.consumed.Store(true)
		close(up.done)
		return up
	}
	go func() {
		defer close(up.done)
		if x.Request.Expects() {
			select {
			case <-up.goAhead:
			case <-time.After(continueWait):
			}
		}
		up.sent, up.err = copyBody(x.Budget.Writer(x.upstream), up.noting(b, b.limited(x.MaxBody)), b.framing.Kind == Chunked, x.watch)
		if failed := (writeError{}); up.err != nil && !errors.As(up.err, &failed) {
			// The body is malformed, too large or cut: the upstream must
			// not take what it has for the whole. A failed write is left
			// alone, for the upstream may have answered before it stopped
			// to read.
			x.upstream.Close()
		}
	}()
	return up
}

func (up *upload) proceed() {
	select {
	case up.goAhead <- struct{}{}:
	default:
	}
}

// noting marks the end of the client's body before its last bytes go to the
// upstream. An upstream answers as soon as it has them, which can be before
// this goroutine runs again.
func (up *upload) noting(b *body, src io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n, err := src.Read(p)
		if b.ended && (err == nil || err == io.EOF) {
			up.consumed.Store(true)
		}
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// finish ends the upload: the answer is over, so nobody waits for the rest of
// the body. It tells whether the client's connection stands at its next
// request.
func (up *upload) finish(x *Exchange) bool {
	x.upstream.Close()
	whole := up.consumed.Load()
	if !whole {
		x.Client.Stream.SetReadDeadline(time.Unix(1, 0))
	}
	up.proceed()
	<-up.done
	return whole
}

// limited makes a body end with a refusal after max bytes.
func (b *body) limited(max int64) io.Reader {
	if max <= 0 {
		return b
	}
	return &limited{b, max}
}

type limited struct {
	body *body
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.body.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, bodyTooLarge()
	}
	return n, err
}
