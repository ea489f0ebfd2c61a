package gate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/addrpolicy"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// pair gives the two ends of a TCP connection.
func pair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	ln := gatetest.Listen(t, gatetest.Loopback)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err == nil {
			b = c.(*net.TCPConn)
		}
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	<-done
	a = c.(*net.TCPConn)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestTunnelKeepsHalfClose(t *testing.T) {
	client, near := pair(t)
	far, origin := pair(t)
	type sums struct{ up, down int64 }
	done := make(chan sums, 1)
	go func() {
		up, down := Tunnel(near, far, time.Minute)
		done <- sums{up, down}
	}()
	question, answer := bytes.Repeat([]byte("q"), 3<<20), bytes.Repeat([]byte("a"), 5<<20)
	go func() {
		client.Write(question)
		client.CloseWrite()
	}()
	got, err := io.ReadAll(origin)
	if err != nil || !bytes.Equal(got, question) {
		t.Fatalf("the origin got %d bytes, %v", len(got), err)
	}
	// The client's direction has ended; the other one goes on.
	go func() {
		origin.Write(answer)
		origin.Close()
	}()
	got, err = io.ReadAll(client)
	if err != nil || !bytes.Equal(got, answer) {
		t.Fatalf("the client got %d bytes, %v", len(got), err)
	}
	if s := <-done; s.up != int64(len(question)) || s.down != int64(len(answer)) {
		t.Errorf("counted %d up, %d down", s.up, s.down)
	}
	if n := taken.Load(); n != 0 {
		t.Errorf("%d big buffers are still out", n)
	}
}

func TestTunnelIdleLimitIsThePairs(t *testing.T) {
	t.Parallel()
	client, near := pair(t)
	far, origin := pair(t)
	const limit = time.Second
	done := make(chan time.Time, 1)
	go func() {
		Tunnel(near, far, limit)
		done <- time.Now()
	}()
	// One direction only, for longer than the limit.
	var last time.Time
	for range 8 {
		time.Sleep(limit / 4)
		if _, err := origin.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		last = time.Now()
	}
	buf := make([]byte, 8)
	if _, err := io.ReadFull(client, buf); err != nil {
		t.Fatalf("a one-sided stream was cut: %v", err)
	}
	if end := <-done; end.Sub(last) < limit/2 {
		t.Errorf("it ended %v after the last byte", end.Sub(last))
	}
}

func TestTunnelEndsBothSidesOnReset(t *testing.T) {
	client, near := pair(t)
	far, origin := pair(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		Tunnel(near, far, time.Minute)
	}()
	client.SetLinger(0)
	client.Close()
	if _, err := io.ReadAll(origin); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	<-done
}

// An upstream whose machine is gone says nothing: only probes find that out.
func TestLongLivedUpstreamIsProbed(t *testing.T) {
	defer func(was time.Duration) { probeAfter = was }(probeAfter)
	probeAfter = 100 * time.Millisecond
	client, near := pair(t)
	far, _ := pair(t)
	Probe(far)
	if on, idle := probes(t, far); on != 1 || idle != 30 {
		t.Fatalf("control: Probe gives SO_KEEPALIVE %d, TCP_KEEPIDLE %d", on, idle)
	}
	far.SetKeepAlive(false) // as the dialer leaves it
	go Tunnel(near, far, time.Minute)
	if on, _ := probes(t, far); on != 0 {
		t.Error("a new upstream is probed at once")
	}
	client.Write([]byte("x"))
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if on, idle := probes(t, far); on == 1 && idle == 30 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("an upstream that lives on is never probed")
		}
	}
}

func probes(t *testing.T, c *net.TCPConn) (on, idle int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		on, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		idle, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
	})
	return on, idle
}

func TestBigBuffersAreLimited(t *testing.T) {
	var held [][]byte
	for range bigBuffers {
		held = append(held, acquire(true))
	}
	over := acquire(true)
	if len(over) != smallBuffer || len(held[bigBuffers-1]) != bigBuffer {
		t.Errorf("%d and %d bytes", len(held[bigBuffers-1]), len(over))
	}
	release(over)
	for _, b := range held {
		release(b)
	}
	if n := taken.Load(); n != 0 {
		t.Errorf("%d are counted as taken", n)
	}
}

func TestRefusalBytes(t *testing.T) {
	r := deniedAddress(addrpolicy.Verdict{Class: addrpolicy.Metadata, Reason: "cloud metadata service"})
	want := "HTTP/1.1 403 botbox: cloud metadata service\r\n" +
		"Connection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 144\r\n" +
		"Proxy-Status: botbox; error=destination_ip_prohibited\r\nX-Botbox-Refused: metadata\r\n\r\n" +
		"botbox refused CONNECT a.example:80\nWhy: cloud metadata service\nWhat to do: " + hintPolicy + "\n"
	if got := string(r.Bytes("CONNECT a.exa\r\nmple:80\x00")); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	if got := string(TooMany().Bytes("x")); !strings.Contains(got, "\r\nRetry-After: 1\r\n") || !strings.HasPrefix(got, "HTTP/1.1 429 ") {
		t.Errorf("%q", got)
	}
}

// The answer must survive a client that has sent more than we read.
func TestAnswerIsNotDestroyedByReset(t *testing.T) {
	client, near := pair(t)
	if _, err := client.Write(make([]byte, 32<<10)); err != nil {
		t.Fatal(err)
	}
	go func() {
		Malformed("x").Answer(near, "the request")
		near.Close()
	}()
	client.SetReadDeadline(time.Now().Add(10 * time.Second))
	var got bytes.Buffer
	if _, err := io.CopyN(&got, client, 12); err != nil || got.String() != "HTTP/1.1 400" {
		t.Errorf("%q, %v", got.String(), err)
	}
	client.Close()
}

func TestServerCapAndClose(t *testing.T) {
	ln := gatetest.Listen(t, gatetest.Loopback)
	entered := make(chan struct{}, 9)
	s := &Server{
		Max:    2,
		Handle: func(_ context.Context, c Stream) { entered <- struct{}{}; io.Copy(io.Discard, c) },
		Full:   func(c Stream) { c.Write([]byte("full")); io.Copy(io.Discard, c) },
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	var conns []net.Conn
	dial := func() net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
		return c
	}
	for range 2 {
		dial()
		<-entered
	}
	buf := make([]byte, 4)
	for range 2 {
		if _, err := io.ReadFull(dial(), buf); err != nil || string(buf) != "full" {
			t.Errorf("above the cap: %q, %v", buf, err)
		}
	}
	if _, err := dial().Read(buf); err == nil {
		t.Error("a connection far above the cap was served")
	}
	s.Close()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: %v", err)
	}
	for i, c := range conns[:2] {
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(buf); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d outlives Close: %v", i, err)
		}
	}
	if err := s.Serve(gatetest.Listen(t, gatetest.Loopback)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve after Close: %v", err)
	}
	s.Close()
}

func TestServerOutlivesAPanic(t *testing.T) {
	ln := gatetest.Listen(t, gatetest.Loopback)
	faults := make(chan any, 1)
	s := &Server{
		Max:    1,
		Handle: func(context.Context, Stream) { panic("boom") },
		Full:   func(Stream) {},
		Fault:  func(cause any, stack []byte) { faults <- cause },
	}
	go s.Serve(ln)
	defer s.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if cause := <-faults; cause != "boom" {
		t.Errorf("fault %v", cause)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection was not closed")
	}
}
