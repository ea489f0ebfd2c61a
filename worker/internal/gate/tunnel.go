package gate

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type rawConn interface {
	SyscallConn() (syscall.RawConn, error)
}

// Idle ends a pair of connections over which nothing has passed for a while.
// The limit is the pair's, not a direction's: a download is one-sided, and a
// model's stream goes quiet for minutes.
type Idle struct {
	limit   time.Duration
	probe   func()       // nil once it was called
	last    atomic.Int64 // Unix nanoseconds
	stopped atomic.Bool  // a check that is already running must not arm the timer again
	timer   *time.Timer
	end     func()
	budget  *Budget // of the bytes that are copied under this watch
}

// probeAfter is how long a connection lives before it is probed: most end
// sooner, and the probes' four system calls stood in the way of each.
var probeAfter = keepAlive

// NewIdle calls end once when nothing was passed for limit. An upstream that
// lives longer than probeAfter is probed from then on, so that one whose
// machine is gone does not hold its connection for the whole limit.
func NewIdle(upstream Stream, limit time.Duration, end func()) *Idle {
	i := &Idle{limit: limit, end: end, probe: func() { Probe(upstream) }}
	i.Passed()
	i.timer = time.AfterFunc(math.MaxInt64, i.check)
	i.timer.Reset(min(limit, probeAfter))
	return i
}

// Probe asks the kernel to find out whether the other end is still there,
// where c goes to another machine.
func Probe(c Stream) {
	if t, ok := c.(*net.TCPConn); ok {
		t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive})
	}
}

// Passed notes that bytes passed.
func (i *Idle) Passed() { i.last.Store(time.Now().UnixNano()) }

// Stop ends the watch.
func (i *Idle) Stop() {
	i.stopped.Store(true)
	i.timer.Stop()
}

func (i *Idle) check() {
	if i.stopped.Load() {
		return
	}
	if i.probe != nil {
		i.probe()
		i.probe = nil
	}
	if left := i.limit - time.Since(time.Unix(0, i.last.Load())); left > 0 {
		i.timer.Reset(left)
		return
	}
	i.end()
}

// Tunnel copies between a client and its upstream until both directions have
// ended, and closes both. A direction that ends is half-closed, so the other
// one may go on; one that breaks off is reset, so that nobody takes what came
// for the whole. Up and down are the bytes that were delivered.
func Tunnel(client, upstream Stream, idle time.Duration) (up, down int64) {
	return (*Budget)(nil).Tunnel(client, upstream, idle)
}

// Tunnel is one whose bytes are counted, and which ends with the budget.
func (b *Budget) Tunnel(client, upstream Stream, idle time.Duration) (up, down int64) {
	watch := NewIdle(upstream, idle, func() {
		Reset(client)
		Reset(upstream)
	})
	watch.budget = b
	defer watch.Stop()
	defer b.OnOver(func() { // what was paid for is delivered
		client.Close()
		upstream.Close()
	})()
	var broken atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() { up = pump(upstream, client, watch, &broken) })
	down = pump(client, upstream, watch, &broken)
	wg.Wait()
	client.Close()
	upstream.Close()
	return up, down
}

// pump copies one direction. Broken says that one end is dead.
func pump(dst, src Stream, watch *Idle, broken *atomic.Bool) (total int64) {
	total, err := Copy(watch.budget.Writer(dst), src, watch)
	if failed := (writeError{}); errors.As(err, &failed) {
		// What dst said before it died is still on its way through the other
		// direction. Its end there proves nothing: the kernel tells of a reset
		// once, and this write has heard it.
		broken.Store(true)
		src.SetWriteDeadline(time.Now().Add(drainTime))
		dst.SetReadDeadline(time.Now().Add(drainTime))
		return total
	}
	switch {
	case watch.budget.Over(): // it ends both
	case err != nil || broken.Load():
		broken.Store(true)
		Reset(dst)
		src.Close()
	case dst.CloseWrite() != nil: // dst is gone
		broken.Store(true)
		dst.Close()
		Reset(src)
	}
	return total
}

// Reset closes a connection so that its other end sees an error and no end.
func Reset(c Stream) {
	if t, ok := c.(interface{ SetLinger(int) error }); ok { // a unix socket knows no reset
		t.SetLinger(0)
	}
	c.Close()
}

// writeError is a failure of the receiving side.
type writeError struct{ error }

// Copy moves bytes until src ends. io.Copy would splice, which holds two
// pipes (four fds) a tunnel and halves the throughput once an ordinary user's
// pipe budget is spent (fs.pipe-user-pages-soft, some 32 tunnels). A plain
// Read would hold a buffer while it waits; here one is held only from a read
// that got bytes until they are written.
func Copy(dst io.Writer, src rawConn, watch *Idle) (total int64, err error) {
	raw, err := src.SyscallConn()
	if err != nil {
		return 0, err
	}
	bulk := false
	for {
		buf, n, err := readReady(raw, bulk)
		if n > 0 {
			watch.Passed()
			var written int
			written, err = dst.Write(buf[:n])
			watch.Passed()
			total += int64(written)
			if err != nil {
				err = writeError{err}
			}
			bulk = n == len(buf) || n > smallBuffer
		}
		release(buf)
		if err != nil || n == 0 {
			return total, err
		}
	}
}

// readReady waits for bytes and reads them into a pooled buffer that the
// caller releases. n is 0 at the end of the stream.
func readReady(raw syscall.RawConn, bulk bool) (buf []byte, n int, err error) {
	var errno error
	err = raw.Read(func(fd uintptr) bool {
		buf = acquire(bulk)
		for {
			n, errno = unix.Read(int(fd), buf)
			if errno != unix.EINTR {
				break
			}
		}
		if errno == unix.EAGAIN {
			release(buf)
			buf = nil
			return false
		}
		return true
	})
	if err == nil {
		err = errno
	}
	if err != nil {
		n = 0
	}
	return buf, n, err
}

const (
	smallBuffer = 32 << 10
	bigBuffer   = 256 << 10
	bigBuffers  = 32 // of all boxes together
)

// Bulk transfers get a big buffer while there is one. Their number is fixed,
// so a box that stalls all its downloads costs others speed, not memory.
var (
	small = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
	big   = sync.Pool{New: func() any { return new([bigBuffer]byte) }}
	taken atomic.Int32
)

func acquire(bulk bool) []byte {
	if bulk {
		if taken.Add(1) <= bigBuffers {
			return big.Get().(*[bigBuffer]byte)[:]
		}
		taken.Add(-1)
	}
	return small.Get().(*[smallBuffer]byte)[:]
}

func release(buf []byte) {
	switch len(buf) {
	case bigBuffer:
		big.Put((*[bigBuffer]byte)(buf))
		taken.Add(-1)
	case smallBuffer:
		small.Put((*[smallBuffer]byte)(buf))
	}
}

// Timeout tells whether a deadline ended a read or write.
func Timeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
