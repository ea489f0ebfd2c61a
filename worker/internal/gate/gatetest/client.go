package gatetest

import (
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for what must happen.
const Patience = 20 * time.Second

// Gate is what every gate is to its accept loop.
type Gate interface {
	Serve(net.Listener) error
	Close()
}

// Start serves a gate on loopback until the test ends, and gives its address.
func Start(t testing.TB, g Gate) (address string) {
	t.Helper()
	ln := Listen(t, Loopback)
	StartAt(t, g, ln)
	return ln.Addr().String()
}

// StartAt serves a gate at a listener until the test ends.
func StartAt(t testing.TB, g Gate, ln net.Listener) {
	done := make(chan struct{})
	go func() { defer close(done); g.Serve(ln) }()
	t.Cleanup(func() { g.Close(); <-done })
}

// Dial connects, for at most Patience.
func Dial(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(Patience))
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// Send writes raw.
func Send(t testing.TB, c io.Writer, raw string) {
	t.Helper()
	if _, err := io.WriteString(c, raw); err != nil {
		t.Fatal(err)
	}
}

// Expect reads as many bytes as want has, which must be want.
func Expect(t testing.TB, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("got %q (%v), want %q", got[:n], err, want)
	}
}

// Ask sends one request and gives the whole answer.
func Ask(t testing.TB, address, raw string) string {
	t.Helper()
	c := Dial(t, address)
	defer c.Close()
	// A refused request may be longer than what the gate reads of it.
	go func() {
		io.WriteString(c, raw)
		c.CloseWrite()
	}()
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("%.100q: %v", raw, err)
	}
	return string(answer)
}

// WaitFor waits until something has happened.
func WaitFor(t testing.TB, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !happened(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen in time")
		}
	}
}

// Descriptors counts the open files of this process.
func Descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Log keeps the decisions of a gate.
type Log[D any] struct {
	mu   sync.Mutex
	list []D
}

// Add is the gate's log function.
func (l *Log[D]) Add(d D) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, d)
}

// All gives what was decided so far.
func (l *Log[D]) All() []D {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]D(nil), l.list...)
}

// Nth waits for the nth decision, counted from 1.
func (l *Log[D]) Nth(t testing.TB, n int) D {
	t.Helper()
	WaitFor(t, func() bool { return len(l.All()) >= n })
	return l.All()[n-1]
}
