package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

// budgeted serves a gate whose box may move limit bytes, in front of a server
// that answers with a body of ?n= bytes, read whole or not.
func budgeted(t *testing.T, limit int64) (proxy, origin string, got *atomic.Int64, decisions chan Decision) {
	t.Helper()
	got = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		got.Add(n)
		var size int
		fmt.Sscan(r.URL.Query().Get("n"), &size)
		w.Header().Set("X-Head", strings.Repeat("h", size/2))
		io.WriteString(w, strings.Repeat("x", size/2))
	}))
	t.Cleanup(server.Close)
	origin = strings.TrimPrefix(server.URL, "http://")
	decisions = make(chan Decision, 100)
	g := New(Options{
		Dialer: gate.Dialer{Except: []netip.AddrPort{netip.MustParseAddrPort(origin)}, Budget: gate.NewBudget(limit, func() {})},
		Log:    func(d Decision) { decisions <- d },
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go g.Serve(ln)
	t.Cleanup(g.Close)
	return ln.Addr().String(), origin, got, decisions
}

// exchange sends raw bytes and gives all that comes back.
func exchange(t *testing.T, proxy, raw string) string {
	t.Helper()
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	go io.WriteString(c, raw)
	b, _ := io.ReadAll(c)
	return string(b)
}

// Bodies and heads count, both ways; what does not fit is refused in words
// where nothing was answered yet, and cut where it was.
func TestBudgetOfPlainHTTP(t *testing.T) {
	const refusal = "HTTP/1.1 403 botbox: this box has used up its bytes of egress\r\n"
	for _, c := range []struct {
		name, method, path, body string
		limit                    int64
		starts                   string
		reaches                  int64 // bytes of the body
		class                    string
	}{
		{"all fits", "GET", "/?n=1000", "", 5000, "HTTP/1.1 200 OK\r\n", 0, "loopback"},
		{"the path", "GET", "/?q=" + strings.Repeat("s", 5000), "", 4000, refusal, 0, "budget"},
		{"the body of the request", "POST", "/", strings.Repeat("b", 1<<20), 300 << 10, refusal, 300 << 10, "budget"},
		{"the head of the answer", "GET", "/?n=8000", "", 2000, refusal, 0, "budget"},
		{"the body of the answer", "GET", "/?n=8000", "", 6000, "HTTP/1.1 200 OK\r\n", 0, "loopback"},
	} {
		proxy, origin, got, decisions := budgeted(t, c.limit)
		answer := exchange(t, proxy, fmt.Sprintf("%s http://%s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", c.method, origin, c.path, origin, len(c.body), c.body))
		if !strings.HasPrefix(answer, c.starts) {
			t.Errorf("%s: %.200q", c.name, answer)
		}
		d := <-decisions
		if d.Class != c.class || d.Allowed != (c.class != "budget") {
			t.Errorf("%s: %+v", c.name, d)
		}
		if n := got.Load(); n > c.reaches || d.Up > c.reaches {
			t.Errorf("%s: %d bytes reached the server, %d were counted, at most %d", c.name, n, d.Up, c.reaches)
		}
		if c.name == "all fits" {
			continue
		}
		if int64(len(answer)) > c.limit && c.class != "budget" {
			t.Errorf("%s: %d bytes came back of %d", c.name, len(answer), c.limit)
		}
		// It is over for every connection of the box, and for good.
		for _, raw := range []string{"GET http://" + origin + "/ HTTP/1.1\r\nHost: " + origin + "\r\n\r\n", "CONNECT " + origin + " HTTP/1.1\r\n\r\n"} {
			if again := exchange(t, proxy, raw); !strings.HasPrefix(again, refusal) || !strings.Contains(again, "X-Botbox-Refused: budget\r\n") {
				t.Errorf("%s, and then: %.200q", c.name, again)
			}
		}
	}
}

// Bytes that came with the CONNECT count as those behind it, and a connection
// that waits for its next request is refused then.
func TestBudgetOfEarlyDataAndLaterRequests(t *testing.T) {
	proxy, origin, _, decisions := budgeted(t, 2000)
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	br := bufio.NewReader(c)
	request := "GET http://" + origin + "/?n=100 HTTP/1.1\r\nHost: " + origin + "\r\n\r\n"
	io.WriteString(c, request)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	io.Copy(io.Discard, resp.Body)
	if d := <-decisions; !d.Allowed {
		t.Errorf("%+v", d)
	}
	if answer := exchange(t, proxy, "CONNECT "+origin+" HTTP/1.1\r\n\r\n"+strings.Repeat("e", 6000)); !strings.HasPrefix(answer, "HTTP/1.1 200 Connection established\r\n") || len(answer) > 2000 {
		t.Errorf("%.300q", answer)
	}
	if d := <-decisions; d.Up > 2000 || d.Method != "connect" {
		t.Errorf("%+v", d)
	}
	io.WriteString(c, request)
	if b, _ := io.ReadAll(br); !strings.HasPrefix(string(b), "HTTP/1.1 403 botbox: this box has used up") {
		t.Errorf("%q", b)
	}
}
