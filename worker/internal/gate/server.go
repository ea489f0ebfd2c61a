package gate

import (
	"cmp"
	"context"
	"errors"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What every gate of a box has unless it is told otherwise.
const (
	DefaultMax  = 256              // connections at once
	DefaultIdle = 30 * time.Minute // engines' streams go quiet for minutes
)

// Server is the accept loop and the log of one gate of one box; a gate embeds
// it. Handle is called on a goroutine of its own for each connection, which is
// closed after it.
type Server struct {
	Journal
	Max    int // connections that are served, 0 is DefaultMax; as many again are told to wait
	Handle func(context.Context, Stream)
	Full   func(Stream) // what a connection above Max gets
	// Fault hears of a panic in Handle, which then costs one connection and
	// not every box (CVE-2023-37788 was such a crash). Nil lets it through.
	Fault func(cause any, stack []byte)

	once   sync.Once
	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	conns     map[Stream]struct{}
	wg        sync.WaitGroup
}

func (s *Server) start() {
	s.once.Do(func() {
		s.Max = cmp.Or(s.Max, DefaultMax)
		s.ctx, s.cancel = context.WithCancel(context.Background())
		s.listeners = make(map[net.Listener]struct{})
		s.conns = make(map[Stream]struct{})
	})
}

// Serve accepts until Close, or until the listener fails for good. It closes
// the listener and returns net.ErrClosed after Close.
func (s *Server) Serve(ln net.Listener) error {
	s.start()
	defer ln.Close()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return net.ErrClosed
	}
	s.listeners[ln] = struct{}{}
	s.mu.Unlock()
	wait := time.Duration(0)
	for {
		c, err := ln.Accept()
		if err != nil {
			if s.ctx.Err() != nil || !passing(err) {
				return s.acceptError(err)
			}
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(wait):
			case <-s.ctx.Done():
			}
			continue
		}
		wait = 0
		s.admit(c)
	}
}

// passing tells whether accept may work again later. To spin on such an error
// would not help, to give up would close the box's only way out.
func passing(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) ||
		errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ECONNABORTED)
}

func (s *Server) acceptError(err error) error {
	if s.ctx.Err() != nil {
		return net.ErrClosed
	}
	return err
}

// admit serves a connection, tells it to wait, or closes it at once: a box
// that opens connections without end must not cost a goroutine for each.
func (s *Server) admit(c net.Conn) {
	stream, ok := c.(Stream)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.conns)
	if !ok || s.closed || n >= 2*s.Max {
		c.Close()
		return
	}
	s.conns[stream] = struct{}{}
	s.wg.Go(func() {
		widen()
		defer s.forget(stream)
		if n >= s.Max {
			s.Full(stream)
			return
		}
		if s.Fault != nil {
			defer s.caught()
		}
		s.Handle(s.ctx, stream)
	})
}

// widen makes the goroutine's stack what a dial needs while next to nothing is
// on it. Go begins with 2 KiB, and copies the stack each time it doubles it:
// three copies in a connection were 7 % of the CPU of a CONNECT.
//
//go:noinline
func widen() {
	var room [6 << 10]byte
	runtime.KeepAlive(&room)
}

func (s *Server) caught() {
	if cause := recover(); cause != nil {
		s.Fault(cause, debug.Stack())
	}
}

func (s *Server) forget(c Stream) {
	c.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// Close ends the gate: the listeners and every connection, and waits until all their
// goroutines have ended. It may be called more than once.
func (s *Server) Close() {
	s.start()
	s.cancel()
	s.mu.Lock()
	s.closed = true
	for ln := range s.listeners {
		ln.Close()
	}
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}
