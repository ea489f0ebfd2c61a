package signin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/gate"
)

var good = map[string]string{ // what is pasted, and the request's first two lines
	"http://127.0.0.1:51121/cb?state=a&code=4/0A%2Fb": "GET /cb?state=a&code=4/0A%2Fb HTTP/1.1\r\nHost: 127.0.0.1:51121\r\n",
	"http://localhost:1024/":                          "GET / HTTP/1.1\r\nHost: localhost:1024\r\n",
	"http://[::1]:65535/x":                            "GET /x HTTP/1.1\r\nHost: [::1]:65535\r\n",
	"http://localhost:8080":                           "GET / HTTP/1.1\r\nHost: localhost:8080\r\n",
	"http://localhost:8080?code=c":                    "GET /?code=c HTTP/1.1\r\nHost: localhost:8080\r\n",
	"http://localhost:8080/cb?code=c#_=_":             "GET /cb?code=c HTTP/1.1\r\nHost: localhost:8080\r\n",
	"http://localhost:8080/cb?next=http://x@y/#a?b":   "GET /cb?next=http://x@y/ HTTP/1.1\r\nHost: localhost:8080\r\n",
	"http://localhost:8080//evil/..;/%2e%2e/":         "GET //evil/..;/%2e%2e/ HTTP/1.1\r\nHost: localhost:8080\r\n",
}

var wrong = []string{
	"", "http://", "http:///", "/cb?code=c", "localhost:8080/cb", "//localhost:8080/", "HTTP://localhost:8080/", "https://localhost:8080/", "ftp://localhost:8080/",
	" http://localhost:8080/", "http://localhost/", "http://localhost:/", "http://localhost:0/", "http://localhost:80/", "http://localhost:1023/", "http://localhost:65536/",
	"http://localhost:08080/", "http://localhost:+8080/", "http://localhost:8080x/", "http://localhost:0x1f90/", "http://localhost: 8080/", "http://localhost:8080 /",
	"http://LOCALHOST:8080/", "http://localhost.:8080/", "http://127.1:8080/", "http://127.0.0.2:8080/", "http://127.0.0.01:8080/", "http://0.0.0.0:8080/", "http://2130706433:8080/",
	"http://::1:8080/", "http://[::]:8080/", "http://[0:0:0:0:0:0:0:1]:8080/", "http://[::ffff:127.0.0.1]:8080/", "http://[::1%lo]:8080/", "http://[127.0.0.1]:8080/", "http://[localhost]:8080/",
	"http://evil:8080/", "http://evil.localhost:8080/", "http://localhost.evil:8080/", "http://u@localhost:8080/", "http://u:p@localhost:8080/", "http://localhost:8080@evil:8080/",
	"http://localhost:8080\\@evil/", "http://localhost:8080\\", "http://localhost%00:8080/", "http://localhost:8080:8081/", "http://:8080/",
	"http://localhost:8080/a b", "http://localhost:8080/a\r\nX: y", "http://localhost:8080/a\nb", "http://localhost:8080/a\tb", "http://localhost:8080/a\x00", "http://localhost:8080/ü", "http://localhost:8080/\x7f",
	"http://localhost:8080/" + strings.Repeat("a", maxRequest), "http://169.254.169.254:8080/", "unix:///run/x",
}

func TestParseURL(t *testing.T) {
	for text, want := range good {
		c, err := ParseURL(text)
		if err != nil || !strings.HasPrefix(string(c.request()), want) || !strings.HasSuffix(string(c.request()), "\r\n\r\n") {
			t.Errorf("%q: %q, %v", text, c.request(), err)
		}
	}
	for _, text := range wrong {
		c, err := ParseURL(text)
		if err == nil || reason.Of(err).Code != reason.BadRedirect {
			t.Errorf("%.60q was taken as %+v, %v", text, c, err)
		}
	}
	_, err := ParseURL("http://evil:8080/cb?code=canary")
	if strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "evil") {
		t.Errorf("the error quotes the redirect: %v", err)
	}
	longest := strings.Repeat("a", maxRequest-len(Callback{host: "localhost:8080"}.request())-1)
	if _, err := ParseURL("http://localhost:8080/" + longest); err != nil {
		t.Errorf("8 KiB: %v", err)
	}
	if _, err := ParseURL("http://localhost:8080/" + longest + "a"); err == nil {
		t.Error("8 KiB and a byte")
	}
}

func TestNew(t *testing.T) {
	if c, err := New(1024, "GET", "/cb?code=c"); err != nil || !strings.HasPrefix(string(c.request()), "GET /cb?code=c HTTP/1.1\r\nHost: localhost:1024\r\n") {
		t.Errorf("%q, %v", c.request(), err)
	}
	for _, bad := range []struct {
		port           int
		method, target string
	}{
		{-1, "GET", "/"}, {0, "GET", "/"}, {22, "GET", "/"}, {1023, "GET", "/"}, {65536, "GET", "/"}, {66560, "GET", "/"}, {1 << 40, "GET", "/"},
		{8080, "", "/"}, {8080, "get", "/"}, {8080, "POST", "/"}, {8080, "HEAD", "/"}, {8080, "CONNECT", "/"}, {8080, "GET ", "/"},
		{8080, "GET", ""}, {8080, "GET", "cb"}, {8080, "GET", "*"}, {8080, "GET", "http://evil/"}, {8080, "GET", "/ HTTP/1.0"}, {8080, "GET", "/a#b"}, {8080, "GET", "/\r\n\r\nGET /b"},
	} {
		if _, err := New(bad.port, bad.method, bad.target); err == nil || reason.Of(err).Code != reason.BadRedirect {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Whatever passes is one request of one line, to a host and port that Go's own
// reader of URLs finds too.
func FuzzParseURL(f *testing.F) {
	for text := range good {
		f.Add(text)
	}
	for _, text := range wrong {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseURL(text)
		if err != nil {
			if reason.Of(err).Code != reason.BadRedirect {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		head := string(c.request())
		if strings.Count(head, "\r\n") != 6 || strings.Count(head, "\n") != 6 || !strings.HasPrefix(head, "GET /") || len(head) > maxRequest {
			t.Errorf("%q becomes %q", text, head)
		}
		if target := c.target; !strings.HasSuffix(text, target) && !strings.Contains(text, target+"#") && !strings.Contains(text, target[1:]) {
			t.Errorf("%q is delivered as %q", text, target)
		}
		if u, err := url.Parse(text); err == nil {
			host := u.Hostname()
			if fmt.Sprint(c.Port) != u.Port() || host != "localhost" && host != "127.0.0.1" && host != "::1" || u.User != nil {
				t.Errorf("%q goes to port %d, and reads as %q", text, c.Port, u.Host)
			}
		}
	})
}

// boxed stands for a box: what is dialled there is a listener of the test's.
type boxed struct {
	v4, v6 string // addresses; "" where nobody listens
	dials  []gate.Family
}

func (b *boxed) Dial(ctx context.Context, family gate.Family, port uint16) (*net.TCPConn, func(), error) {
	b.dials = append(b.dials, family)
	address := map[gate.Family]string{gate.V4: b.v4, gate.V6: b.v6}[family]
	if address == "" {
		return nil, nil, gate.ErrNobody
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	return c.(*net.TCPConn), func() { c.Close() }, nil
}

// listen answers each connection by f, with the request's head.
func listen(t *testing.T, f func(c net.Conn, head string)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
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
			go func() {
				defer c.Close()
				var head bytes.Buffer
				for b := make([]byte, 1); !bytes.HasSuffix(head.Bytes(), []byte("\r\n\r\n")); {
					if _, err := io.ReadFull(c, b); err != nil {
						return
					}
					head.Write(b)
				}
				f(c, head.String())
			}()
		}
	}()
	return ln.Addr().String()
}

func callback(t *testing.T, url string) Callback {
	t.Helper()
	c, err := ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDeliver(t *testing.T) {
	heads := make(chan string, 1)
	address := listen(t, func(c net.Conn, head string) {
		heads <- head
		io.WriteString(c, "HTTP/1.1 302 Found\r\nLocation: https://example.com/done\r\nSet-Cookie: a=b\r\nX-Other: x\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\nf\xffo")
	})
	way := &boxed{v6: address}
	r := NewRelay(way, 3128)
	got, err := r.Deliver(t.Context(), callback(t, "http://localhost:51121/cb?code=c"))
	if err != nil || got.Status != 302 || got.Body != "f\uFFFDo" || got.Truncated || len(got.Headers) != 2 ||
		got.Headers["location"] != "https://example.com/done" || got.Headers["content-type"] != "text/html" {
		t.Errorf("%+v, %v", got, err)
	}
	if head := <-heads; head != "GET /cb?code=c HTTP/1.1\r\nHost: localhost:51121\r\nUser-Agent: botbox\r\nAccept: */*\r\nConnection: close\r\n\r\n" {
		t.Errorf("the engine got %q", head)
	}
	if fmt.Sprint(way.dials) != fmt.Sprint([]gate.Family{gate.V4, gate.V6}) {
		t.Errorf("dialled %v", way.dials)
	}
	if _, err := r.Deliver(t.Context(), callback(t, "http://127.0.0.1:51121/")); reason.Of(err).Code != reason.RelayNotReady {
		t.Errorf("nobody on IPv4: %v", err)
	}
	before := len(way.dials)
	if _, err := r.Deliver(t.Context(), callback(t, "http://localhost:3128/")); reason.Of(err).Code != reason.BadRedirect || len(way.dials) != before {
		t.Errorf("a gate's port: %v", err)
	}
}

// Who answers is hostile: what it does costs a bounded time and some memory.
func TestHostileAnswers(t *testing.T) {
	follow := make(chan struct{}, 1)
	elsewhere := listen(t, func(net.Conn, string) { follow <- struct{}{} })
	for name, c := range map[string]struct {
		answer func(net.Conn)
		code   reason.Code // "" = an answer
		body   int
	}{
		"nothing":          {func(c net.Conn) {}, reason.RelayFailed, 0},
		"silence":          {func(c net.Conn) { io.Copy(io.Discard, c) }, reason.RelayFailed, 0},
		"noise":            {func(c net.Conn) { c.Write(bytes.Repeat([]byte{0xff}, 1<<20)) }, reason.RelayFailed, 0},
		"no HTTP":          {func(c net.Conn) { io.WriteString(c, "hello\r\n\r\n") }, reason.RelayFailed, 0},
		"an endless head":  {func(c net.Conn) { endless(c, "HTTP/1.1 200 OK\r\n", "X: y\r\n") }, reason.RelayFailed, 0},
		"an endless line":  {func(c net.Conn) { endless(c, "HTTP/1.1 200 OK\r\nX: ", "yyyyyyyy") }, reason.RelayFailed, 0},
		"endless interim":  {func(c net.Conn) { endless(c, "", "HTTP/1.1 100 Continue\r\n\r\n") }, reason.RelayFailed, 0},
		"another protocol": {func(c net.Conn) { io.WriteString(c, "HTTP/1.1 101 x\r\nUpgrade: h2c\r\n\r\n") }, reason.RelayFailed, 0},
		"two lengths": {func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")
		}, reason.RelayFailed, 0},
		"a cut body":      {func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nab") }, reason.RelayFailed, 0},
		"a broken chunk":  {func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n") }, reason.RelayFailed, 0},
		"a body by drops": {func(c net.Conn) { drip(c) }, reason.RelayFailed, 0},
		"an endless body": {func(c net.Conn) { endless(c, "HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 4096)) }, "", maxBody},
		"an endless chunk": {func(c net.Conn) {
			endless(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\n", "xxxxxxxx")
		}, "", maxBody},
		"a length beyond all": {func(c net.Conn) {
			endless(c, "HTTP/1.1 200 OK\r\nContent-Length: 4000000000000000000\r\n\r\n", "xxxxxxxx")
		}, "", maxBody},
		"a redirect elsewhere": {func(c net.Conn) {
			fmt.Fprintf(c, "HTTP/1.1 307 x\r\nLocation: http://%s/\r\nContent-Length: 0\r\n\r\n", elsewhere)
		}, "", 0},
	} {
		address := listen(t, func(conn net.Conn, _ string) { c.answer(conn) })
		r := NewRelay(&boxed{v4: address})
		r.within = 500 * time.Millisecond
		start := time.Now()
		got, err := r.Deliver(t.Context(), callback(t, "http://127.0.0.1:51121/"))
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
		switch {
		case c.code == "" && (err != nil || len(got.Body) != c.body || got.Truncated != (c.body > 0)):
			t.Errorf("%s: %d bytes, %v, %v", name, len(got.Body), got.Truncated, err)
		case c.code != "" && (err == nil || reason.Of(err).Code != c.code):
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	select {
	case <-follow:
		t.Error("a redirect was followed")
	case <-time.After(50 * time.Millisecond):
	}
	if resp, err := http.Get("http://" + elsewhere); err == nil { // positive control
		resp.Body.Close()
	}
	select {
	case <-follow:
	case <-time.After(10 * time.Second):
		t.Error("where the redirect leads nobody counts")
	}
}

func endless(c net.Conn, first, rest string) {
	io.WriteString(c, first)
	for {
		if _, err := io.WriteString(c, rest); err != nil {
			return
		}
	}
}

func drip(c net.Conn) {
	io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
	for {
		if _, err := io.WriteString(c, "x"); err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestOneAtATime(t *testing.T) {
	reached, goOn := make(chan struct{}), make(chan struct{})
	address := listen(t, func(c net.Conn, _ string) {
		reached <- struct{}{}
		<-goOn
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	r := NewRelay(&boxed{v4: address})
	c := callback(t, "http://127.0.0.1:51121/")
	first := make(chan error, 1)
	go func() { _, err := r.Deliver(context.Background(), c); first <- err }()
	<-reached
	if _, err := r.Deliver(t.Context(), c); reason.Of(err).Code != reason.RelayBusy {
		t.Errorf("the second: %v", err)
	}
	goOn <- struct{}{}
	if err := <-first; err != nil {
		t.Error(err)
	}
	go func() { <-reached; goOn <- struct{}{} }()
	if _, err := r.Deliver(t.Context(), c); err != nil {
		t.Errorf("the third: %v", err)
	}
}

func TestTheCallerGoesAway(t *testing.T) {
	reached := make(chan struct{})
	address := listen(t, func(c net.Conn, _ string) { close(reached); io.Copy(io.Discard, c) })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-reached; cancel() }()
	_, err := NewRelay(&boxed{v4: address}).Deliver(ctx, callback(t, "http://127.0.0.1:51121/"))
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
