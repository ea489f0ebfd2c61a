package gate

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Family is an IP version in a box.
type Family int

// The families of a box's loopback: 127.0.0.1 and ::1.
const (
	V4 Family = unix.AF_INET
	V6 Family = unix.AF_INET6
)

// The ways in which Inward.Dial fails, beside those of its context.
var (
	ErrNobody = errors.New("nobody listens there")       // the box refused the connection
	ErrFamily = errors.New("the box has no such family") // no spare of it was donated
	ErrInward = errors.New("the way into the box is closed")
)

// Inward is the way into one box's own loopback, and to nothing else: it
// connects sockets that were born in the box's network namespace. One that was
// used is disconnected and used again, so there are at most as many
// connections at once as spares were donated.
type Inward struct {
	free map[Family]chan *os.File

	mu     sync.Mutex
	closed bool
	all    []*os.File
	open   map[*net.TCPConn]bool
	done   chan struct{}
}

// NewInward takes the sockets over. One that comes back from a worker that died
// may be connected still.
func NewInward(spares []*os.File) *Inward {
	in := &Inward{free: map[Family]chan *os.File{}, all: spares, open: map[*net.TCPConn]bool{}, done: make(chan struct{})}
	for _, f := range spares {
		family := V4
		if raw, err := f.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) {
				n, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
				family = Family(n)
			})
		}
		if in.free[family] == nil {
			in.free[family] = make(chan *os.File, len(spares))
		}
		disconnect(f)
		in.free[family] <- f
	}
	return in
}

// Dial connects to a port of the box's loopback. It waits for a socket that is
// free, as long as ctx lasts. Release gives the socket back, and must be called
// once; it closes the connection.
func (in *Inward) Dial(ctx context.Context, family Family, port uint16) (c *net.TCPConn, release func(), err error) {
	free := in.free[family]
	if free == nil {
		return nil, nil, ErrFamily
	}
	var spare *os.File
	select {
	case spare = <-free:
	case <-in.done:
		return nil, nil, ErrInward
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	back := func() {
		disconnect(spare)
		free <- spare
	}
	if err := connect(ctx, spare, family, port); err != nil {
		back()
		return nil, nil, in.cause(err)
	}
	conn, err := net.FileConn(spare) // a copy, which shares the connection
	if err != nil {
		back()
		return nil, nil, in.cause(err)
	}
	c, ok := conn.(*net.TCPConn)
	if !ok || !in.lend(c) {
		conn.Close()
		back()
		return nil, nil, ErrInward
	}
	return c, sync.OnceFunc(func() {
		in.mu.Lock()
		delete(in.open, c)
		in.mu.Unlock()
		c.CloseWrite() // an end, where the disconnect alone would be a reset
		c.Close()
		back()
	}), nil
}

// cause is ErrInward for whatever failed because of Close.
func (in *Inward) cause(err error) error {
	select {
	case <-in.done:
		return ErrInward
	default:
		return err
	}
}

func (in *Inward) lend(c *net.TCPConn) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.open[c] = true
	}
	return !in.closed
}

// Close ends every connection and gives the box's network namespace up.
func (in *Inward) Close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return
	}
	in.closed = true
	close(in.done)
	for c := range in.open {
		c.Close()
	}
	for _, f := range in.all {
		f.Close()
	}
}

// connect connects a spare to the loopback of the network namespace that it was
// born in.
func connect(ctx context.Context, spare *os.File, family Family, port uint16) error {
	raw, err := spare.SyscallConn()
	if err != nil {
		return ErrInward
	}
	var to unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: int(port)}
	if family == V6 {
		to = &unix.SockaddrInet6{Addr: [16]byte{15: 1}, Port: int(port)}
	}
	if err := raw.Control(func(fd uintptr) {
		err = unix.Connect(int(fd), to)
		for err == unix.EINTR {
			err = unix.Connect(int(fd), to)
		}
	}); err != nil {
		return ErrInward
	}
	if err == unix.EINPROGRESS || err == unix.EALREADY {
		err = await(ctx, spare)
	}
	switch {
	case errors.Is(err, unix.ECONNREFUSED), err == nil && meetsItself(spare):
		return ErrNobody
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

// await waits for a connection under way.
func await(ctx context.Context, spare *os.File) error {
	defer spare.SetWriteDeadline(time.Time{})
	defer context.AfterFunc(ctx, func() { spare.SetWriteDeadline(time.Unix(1, 0)) })()
	raw, err := spare.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(poll, 0); n == 0 || err == unix.EINTR {
			return false
		}
		if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); err != nil {
			failed = err
		} else if n != 0 {
			failed = unix.Errno(n)
		}
		return true
	})
	return errors.Join(err, failed)
}

// meetsItself tells whether a socket was connected to itself: where nobody
// listens on a port of the range that the kernel gives out, it may give that
// very port to the caller, and TCP then opens from both sides.
func meetsItself(spare *os.File) (same bool) {
	raw, err := spare.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		here, err1 := unix.Getsockname(int(fd))
		there, err2 := unix.Getpeername(int(fd))
		same = err1 == nil && err2 == nil && portOf(here) == portOf(there)
	})
	return same
}

func portOf(a unix.Sockaddr) int {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return a.Port
	case *unix.SockaddrInet6:
		return a.Port
	}
	return 0
}

// disconnect makes a socket as it was before: connect to AF_UNSPEC, which x/sys
// has no address for.
func disconnect(spare *os.File) {
	raw, err := spare.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		none := unix.RawSockaddr{Family: unix.AF_UNSPEC}
		unix.Syscall(unix.SYS_CONNECT, fd, uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none))
	})
}
