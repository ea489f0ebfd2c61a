package gate

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// spares makes sockets as boxentry does, in the test's own network.
func spares(t *testing.T, families ...int) []*os.File {
	t.Helper()
	var all []*os.File
	for _, family := range families {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "spare")
		t.Cleanup(func() { f.Close() })
		all = append(all, f)
	}
	return all
}

// echo answers each line, and ends when the client has.
func echo(t *testing.T, network, address string) (port uint16) {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) }() // no splice: its pipes stay open
		}
	}()
	return uint16(ln.Addr().(*net.TCPAddr).Port)
}

func openFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestInwardUsesOneSocketAgainAndAgain(t *testing.T) {
	port, port6 := echo(t, "tcp4", "127.0.0.1:0"), echo(t, "tcp6", "[::1]:0")
	in := NewInward(spares(t, unix.AF_INET, unix.AF_INET6))
	defer in.Close()
	in.Dial(t.Context(), V4, 1) // the runtime's own files are open now
	before := openFDs(t)
	for i := range 200 {
		family, to := V4, port
		if i%2 == 1 {
			family, to = V6, port6
		}
		c, release, err := in.Dial(t.Context(), family, to)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		io.WriteString(c, strconv.Itoa(i)+"\n")
		if i%3 == 0 {
			c.CloseWrite()
		}
		if got, err := bufio.NewReader(c).ReadString('\n'); got != strconv.Itoa(i)+"\n" {
			t.Fatalf("%d: %q, %v", i, got, err)
		}
		release()
		if _, _, err := in.Dial(t.Context(), family, 1); !errors.Is(err, ErrNobody) {
			t.Fatalf("nobody listens: %v", err)
		}
	}
	for deadline := time.Now().Add(2 * time.Second); openFDs(t) > before && time.Now().Before(deadline); { // the echo's own end
		time.Sleep(5 * time.Millisecond)
	}
	if n := openFDs(t); n > before {
		t.Errorf("%d files are open, %d before", n, before)
	}
}

func TestInwardWaitsForAFreeSocket(t *testing.T) {
	port := echo(t, "tcp4", "127.0.0.1:0")
	in := NewInward(spares(t, unix.AF_INET))
	defer in.Close()
	_, release, err := in.Dial(t.Context(), V4, port)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := in.Dial(ctx, V4, port); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("none is free: %v", err)
	}
	if _, _, err := in.Dial(t.Context(), V6, port); !errors.Is(err, ErrFamily) {
		t.Errorf("no such family: %v", err)
	}
	time.AfterFunc(20*time.Millisecond, release)
	_, again, err := in.Dial(t.Context(), V4, port)
	if err != nil {
		t.Fatal(err)
	}
	again()
	again() // a second time is nothing
}

// A listener whose queue is full does not answer at all.
func TestInwardGivesUp(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	at, _ := unix.Getsockname(fd)
	port := at.(*unix.SockaddrInet4).Port
	for range 4 {
		if c, err := net.DialTimeout("tcp", "127.0.0.1:"+strconv.Itoa(port), 200*time.Millisecond); err == nil {
			defer c.Close()
		}
	}
	in := NewInward(spares(t, unix.AF_INET))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, _, err := in.Dial(ctx, V4, uint16(port)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if c, release, err := in.Dial(t.Context(), V4, echo(t, "tcp4", "127.0.0.1:0")); err != nil {
		t.Errorf("the socket is of no use any more: %v", err)
	} else {
		c.Close()
		release()
	}
	done := make(chan error, 1)
	go func() { _, _, err := in.Dial(context.Background(), V4, uint16(port)); done <- err }()
	time.Sleep(50 * time.Millisecond)
	in.Close()
	select {
	case err := <-done:
		if !errors.Is(err, ErrInward) {
			t.Errorf("closed while it connects: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("Close does not end a connect")
	}
}

func TestInwardCloseEndsConnections(t *testing.T) {
	port := echo(t, "tcp4", "127.0.0.1:0")
	before := openFDs(t)
	in := NewInward(spares(t, unix.AF_INET, unix.AF_INET))
	c, release, err := in.Dial(t.Context(), V4, port)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := c.Read(make([]byte, 1)); ended <- err }()
	in.Close()
	in.Close()
	if err := <-ended; err == nil {
		t.Error("a read goes on")
	}
	release()
	if _, _, err := in.Dial(t.Context(), V4, port); !errors.Is(err, ErrInward) {
		t.Errorf("a new one: %v", err)
	}
	for deadline := time.Now().Add(2 * time.Second); openFDs(t) > before+2 && time.Now().Before(deadline); { // the echo's own end
		time.Sleep(5 * time.Millisecond)
	}
	if n := openFDs(t); n > before+1 {
		t.Errorf("%d files are open, %d before", n, before)
	}
}

// A socket that the kernel connects to itself is not somebody who listens.
func TestInwardDoesNotMeetItself(t *testing.T) {
	all := spares(t, unix.AF_INET)
	fd := int(all[0].Fd())
	unix.SetNonblock(fd, true)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, _ := unix.Getsockname(fd)
	port := uint16(at.(*unix.SockaddrInet4).Port)
	if conn, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: int(port)}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: int(port)}); err == nil {
		conn.Close() // positive control: the kernel does it
	} else if !strings.Contains(err.Error(), "in use") {
		t.Errorf("the kernel connects no socket to itself: %v", err)
	}
	in := NewInward(all)
	defer in.Close()
	if _, _, err := in.Dial(t.Context(), V4, port); !errors.Is(err, ErrNobody) {
		t.Errorf("%v", err)
	}
}
