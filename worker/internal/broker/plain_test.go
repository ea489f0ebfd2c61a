package broker

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// plains is the stage's own pool.
func (s *stage) plains() *upstreams { return s.Broker.transport.(*upstreams) }

func (u *upstreams) idles() (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, all := range u.idle {
		n += len(all)
	}
	return n
}

// awaitIdle waits until as many connections are idle: one becomes so after its
// answer has been passed on.
func (s *stage) awaitIdle(want int) {
	s.t.Helper()
	end := time.Now().Add(10 * time.Second)
	for s.plains().idles() != want {
		if time.Now().After(end) {
			s.t.Fatalf("%d connections are idle, want %d", s.plains().idles(), want)
		}
		time.Sleep(time.Millisecond)
	}
}

// What an upstream answers is taken for no more than it is, and its connection
// is kept only where both sides stand at the next request.
func TestPlainAnswers(t *testing.T) {
	const whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	long := "X-Long: " + strings.Repeat("a", longestHead) + "\r\n"
	for name, c := range map[string]struct {
		raw    string
		closes bool
		status int
		kept   int
	}{
		"control":                  {whole, false, 200, 1},
		"chunked":                  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", false, 200, 1},
		"no body":                  {"HTTP/1.1 204 No Content\r\n\r\n", false, 204, 1},
		"early hints":              {"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + whole, false, 200, 1},
		"it closes":                {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", true, 200, 0},
		"until its end":            {"HTTP/1.1 200 OK\r\n\r\n{}", true, 200, 0},
		"HTTP/1.0":                 {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", true, 200, 0},
		"a second answer":          {whole + whole, false, 200, 0},
		"hints without end":        {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", interimAnswers) + whole, false, 502, 0},
		"a tunnel":                 {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", false, 502, 0},
		"a head without end":       {"HTTP/1.1 200 OK\r\n" + long + whole[17:], false, 502, 0},
		"no HTTP":                  {"SSH-2.0-server\r\n\r\n", false, 502, 0},
		"two lengths":              {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 20\r\n\r\n{}", false, 502, 0},
		"nothing":                  {"", true, 502, 0},
		"a head that is cut":       {"HTTP/1.1 200 OK\r\nContent-Le", true, 502, 0},
		"a refusal before the end": {"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}", false, 413, 1},
	} {
		t.Run(name, func(t *testing.T) {
			url, conns := rawUpstream(t, func(int64) (string, bool) { return c.raw, c.closes })
			s := newStage(t, nil)
			addr := s.serve("b1")
			token, _ := s.issue("b1", url)
			for range 2 {
				got := send(t, addr, "POST", "/b/"+token+"/anthropic/v1/messages", nil, `{"a":1}`)
				if got.status != c.status || c.status == 200 && got.body != "{}" {
					t.Fatalf("%d %q", got.status, got.body)
				}
				s.awaitIdle(c.kept)
			}
			if n := conns.Load(); n != int64(2-c.kept) {
				t.Errorf("%d connections for two requests", n)
			}
		})
	}
}

// An answer that nobody asked for is not the next request's: it would be
// another request's, with whatever is in it.
func TestAnAnswerNobodyAskedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sent := make(chan bool, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				for br := bufio.NewReader(c); ; {
					r, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
					time.Sleep(50 * time.Millisecond)
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad")
					sent <- true
				}
			}()
		}
	}()
	s := newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", "http://"+l.Addr().String())
	for range 3 {
		if got := send(t, addr, "POST", "/b/"+token+"/anthropic/v1/messages", nil, "{}"); got.body != "good" {
			t.Fatalf("%d %q", got.status, got.body)
		}
		<-sent
	}
}

// An upstream that refuses a request before it has read it is heard, also when
// it never reads on: nobody waits for the rest to be taken.
func TestARefusalBeforeTheBodyIsRead(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.(*net.TCPConn).SetReadBuffer(4 << 10)
			go func() {
				defer c.Close()
				bufio.NewReaderSize(c, 16).ReadString('\n')
				io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
				<-over // it neither reads nor closes
			}()
		}
	}()
	s := newStage(t, nil)
	dial := s.plains().DialContext
	waits := 0 // how often the whole request did not fit
	s.plains().DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err == nil {
			waits++
			c.(*net.TCPConn).SetWriteBuffer(4 << 10)
		}
		return c, err
	}
	addr := s.serve("b1")
	token, _ := s.issue("b1", "http://"+l.Addr().String())
	body := strings.Repeat("x", heldBody)
	for range 3 {
		got := send(t, addr, "POST", "/b/"+token+"/anthropic/v1/messages", nil, body)
		if got.status != 413 || got.body != "{}" {
			t.Fatalf("%d %q", got.status, got.body)
		}
		s.awaitIdle(0) // half a request is on it
	}
	if waits != 3 {
		t.Errorf("%d connections for three requests", waits)
	}
}

// A request that does not fit at once arrives whole all the same.
func TestAPlainRequestInPieces(t *testing.T) {
	up := newUpstream(t)
	s := newStage(t, nil)
	dial := s.plains().DialContext
	s.plains().DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err == nil {
			c.(*net.TCPConn).SetWriteBuffer(4 << 10)
		}
		return c, err
	}
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	for i := range 20 {
		body := strings.Repeat(fmt.Sprintf("%07d\n", i), heldBody/8)
		got := send(t, addr, "POST", "/b/"+token+"/anthropic/v1/messages", nil, body)
		if seen := up.last(t); got.status != 200 || string(seen.Body) != body {
			t.Fatalf("%d; %d bytes came of %d", got.status, len(seen.Body), len(body))
		}
	}
}

// Idle connections end with their grant, and after idleConn by themselves.
func TestIdleConnectionsEnd(t *testing.T) {
	url, conns := rawUpstream(t, func(int64) (string, bool) { return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", false })
	s := newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", url)
	post := func() {
		t.Helper()
		if got := send(t, addr, "POST", "/b/"+token+"/anthropic/v1/messages", nil, "{}"); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		s.awaitIdle(1)
	}
	u := s.plains()
	age := func(by time.Duration) {
		u.mu.Lock()
		defer u.mu.Unlock()
		for _, all := range u.idle {
			for _, c := range all {
				c.since = c.since.Add(-by)
			}
		}
	}
	post()
	age(idleConn / 2)
	post()
	if conns.Load() != 1 {
		t.Fatal("control: a young connection is not used again")
	}
	age(idleConn)
	post()
	if conns.Load() != 2 {
		t.Error("a connection was used that the upstream may be about to close")
	}
	u.sweep()
	s.awaitIdle(1)
	age(idleConn)
	u.sweep()
	s.awaitIdle(0)
	post()
	s.Revoke("b1")
	s.awaitIdle(0)
}

// What net/http must look at is not written by us; nothing stays in the memory
// that the next box's request is put into.
func TestPlainMessages(t *testing.T) {
	request := func(url string, h http.Header) *http.Request {
		r, err := http.NewRequest("POST", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = h
		return r
	}
	s := newStage(t, nil)
	hold := func() *held {
		body := strings.NewReader(`{"a":1}`)
		h, err := s.hold(int64(body.Len()), &upload{body: io.NopCloser(body), meter: newMeter(Limits{})})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	for name, c := range map[string]struct {
		url   string
		h     http.Header
		plain bool
	}{
		"control":         {"http://up.example/v1/x?a=b", http.Header{"X-Api-Key": {"sk"}, "User-Agent": nil}, true},
		"TLS":             {"https://up.example/v1/x", nil, false},
		"it waits":        {"http://up.example/v1/x", http.Header{"Expect": {"100-continue"}}, false},
		"a name to write": {"http://üp.example/v1/x", nil, false},
		"a zone":          {"http://[fe80::1%25eth0]/v1/x", nil, false},
		"a line break":    {"http://up.example/v1/x", http.Header{"A": {"b\r\nX-Evil: 1"}}, false},
		"in a name":       {"http://up.example/v1/x", http.Header{"A\nX-Evil": {"b"}}, false},
		"a long head":     {"http://up.example/v1/x", http.Header{"A": {strings.Repeat("b", headRoom)}}, false},
	} {
		h := hold()
		message := h.message(request(c.url, c.h))
		if (message != nil) != c.plain {
			t.Errorf("%s: %.200q", name, message)
		}
		if !c.plain {
			continue
		}
		const want = "POST /v1/x?a=b HTTP/1.1\r\nHost: up.example\r\nX-Api-Key: sk\r\nContent-Length: 7\r\n\r\n{\"a\":1}"
		if string(message) != want {
			t.Errorf("%s: %q", name, message)
		}
		h.wrote.Store(true)
		h.release(s.Broker)
		if !bytes.Equal(message, make([]byte, len(message))) {
			t.Errorf("%s: it holds %q when it is given back", name, message)
		}
	}
}
