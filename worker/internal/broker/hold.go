package broker

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// A short request body is read before it is sent on. So it leaves with its
// header in one write; and when its connection turns out to be closed before a
// byte was written, the transport takes another one, which it cannot do with a
// body that streams. Nothing is sent twice.
const (
	heldBody = 128 << 10
	// headRoom lies before it: head and body of a request leave in one piece.
	headRoom = 8 << 10
	// heldBytes bounds all of them together: beyond it, bodies stream.
	heldBytes = 64 << 20
)

var holders = sync.Pool{New: func() any { return new([headRoom + heldBody]byte) }}

// held is a body in memory; nil is one that streams.
type held struct {
	buffer *[headRoom + heldBody]byte
	data   []byte
	wrote  atomic.Bool // the transport has written all of it
	twice  atomic.Bool // and had to begin again
}

// hold reads a short body to its end.
func (b *Broker) hold(length int64, body *upload) (*held, error) {
	if length <= 0 || length > heldBody {
		return nil, nil
	}
	if b.held.Add(length) > heldBytes {
		b.held.Add(-length)
		return nil, nil
	}
	h := &held{buffer: holders.Get().(*[headRoom + heldBody]byte)}
	h.data = h.buffer[headRoom:][:length]
	if _, err := io.ReadFull(body, h.data); err != nil {
		h.wrote.Store(true) // nobody else has it yet
		h.release(b)
		return nil, err
	}
	return h, nil
}

// watch is told when the transport is done with the body.
func (h *held) watch(ctx context.Context) context.Context {
	if h == nil {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) { h.wrote.Store(i.Err == nil) },
	})
}

// give makes it the body of out, in a type that net/http knows to be memory.
func (h *held) give(out *http.Request) {
	if h == nil {
		return
	}
	data := h.data // the transport may come after h was released
	out.Body = io.NopCloser(bytes.NewReader(data))
	out.GetBody = func() (io.ReadCloser, error) {
		h.twice.Store(true)
		return io.NopCloser(bytes.NewReader(data)), nil
	}
}

// message is the whole request, to a host that net/http is not needed for. nil:
// it is.
func (h *held) message(out *http.Request) []byte {
	if !plain(out) {
		return nil
	}
	head, ok := appendHead(h.buffer[:0], out, len(h.data))
	if !ok || len(head) > headRoom {
		return nil
	}
	message := h.buffer[headRoom-len(head) : headRoom+len(h.data)]
	copy(message, head)
	return message
}

// release gives the memory back. A buffer that a transport may still look at
// is left to the garbage collector.
func (h *held) release(b *Broker) {
	if h == nil || h.buffer == nil {
		return
	}
	b.held.Add(-int64(len(h.data)))
	if h.wrote.Load() && !h.twice.Load() {
		clear(h.buffer[:headRoom+len(h.data)]) // it is one box's, and the next user of it may be another's
		holders.Put(h.buffer)
	}
	h.buffer, h.data = nil, nil
}

// answered releases a body that was sent: the answer may go on for hours.
func (h *held) answered(b *Broker) {
	if h != nil && h.wrote.Load() {
		h.release(b)
	}
}
