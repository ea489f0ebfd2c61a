package broker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// rawConns are the connections that came to a rawUpstream, and how many.
type rawConns struct {
	atomic.Int64
	mu  sync.Mutex
	all []net.Conn
}

func (c *rawConns) add(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, conn)
	c.Add(1)
}

// hangUp closes them; when it returns, the other side could know.
func (c *rawConns) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		conn.Close()
	}
}

// rawUpstream answers each request with the bytes that answer gives, and
// closes the connection then if it says so.
func rawUpstream(t *testing.T, answer func(n int64) (bytes string, closes bool)) (url string, conns *rawConns) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var requests atomic.Int64
	conns = new(rawConns)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.add(c)
			go func() {
				defer c.Close()
				for br := bufio.NewReader(c); ; {
					req, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					io.Copy(io.Discard, req.Body)
					bytes, closes := answer(requests.Add(1))
					if _, err := io.WriteString(c, bytes); err != nil || closes {
						return
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String(), conns
}

// An upstream may close a connection that is kept for a next request without a
// word. The next request must not be the one that finds out (clodex 158,
// claude-code-cache-fix PR 371: 502 after a pause).
func TestAnUpstreamThatClosesIdleConnections(t *testing.T) {
	for name, closes := range map[string]bool{"control: it keeps them": false, "it closes them": true} {
		url, conns := rawUpstream(t, func(int64) (string, bool) {
			return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", false
		})
		s := newStage(t, nil)
		addr := s.serve("b1")
		token, _ := s.issue("b1", url)
		const requests = 30
		for i := range requests {
			got := send(t, addr, "POST", "/b/"+token+"/anthropic/v1/messages", nil, fmt.Sprintf(`{"n":%d}`, i))
			if got.status != 200 || got.body != "{}" {
				t.Fatalf("%s: request %d: %d %q", name, i, got.status, got.body)
			}
			s.awaitIdle(1)
			if closes {
				conns.hangUp()
			}
		}
		if n := conns.Load(); n != map[bool]int64{false: 1, true: requests}[closes] {
			t.Errorf("%s: %d connections for %d requests", name, n, requests)
		}
	}
}

// The framing is each side's own affair: fields that speak of the upstream's
// do not pass (powerproxy-aoai 53, Floway 96: both fields, or a false length).
func TestFramingOfAnswersIsMadeAnew(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	for name, raw := range map[string]string{
		"control":               head + "Content-Length: 11\r\n\r\n{\"whole\":1}",
		"chunked, false length": head + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"who\r\n6\r\nle\":1}\r\n0\r\n\r\n",
		"until the end":         head + "\r\n{\"whole\":1}",
	} {
		url, _ := rawUpstream(t, func(int64) (string, bool) { return raw, true })
		s := newStage(t, nil)
		addr := s.serve("b1")
		token, _ := s.issue("b1", url)
		got := send(t, addr, "POST", "/b/"+token+"/anthropic/v1/messages", nil, `{}`)
		if got.status != 200 || got.body != `{"whole":1}` {
			t.Errorf("%s: %d %q", name, got.status, got.body)
		}
		// Go's client forgives what others do not, so the fields are counted here.
		fields := rawHead(t, addr, "POST /b/"+token+"/anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
		if framing := strings.Count(fields, "content-length:") + strings.Count(fields, "transfer-encoding:"); framing != 1 || strings.Contains(fields, "content-length: 3") {
			t.Errorf("%s: %q", name, fields)
		}
	}
}

// rawHead gives the head of the answer to raw as it comes, in lower case.
func rawHead(t *testing.T, addr, raw string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, raw)
	var head strings.Builder
	for br := bufio.NewReader(conn); ; {
		line, err := br.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "\r\n" {
			return strings.ToLower(head.String())
		}
		head.WriteString(line)
	}
}
