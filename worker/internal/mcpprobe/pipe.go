package mcpprobe

import (
	"context"
	"net"
	"sync"
)

// pipe is a listener inside of this process.
type pipe struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipe() *pipe { return &pipe{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipe) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	var err error
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		err = net.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	ours.Close()
	theirs.Close()
	return nil, err
}

// Accept gives the other end of the next dial.
func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and later dials.
func (p *pipe) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// Addr names no place.
func (p *pipe) Addr() net.Addr { return pipeAddr{} }
