package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

func read(s string) (*Request, error) { return ReadRequest(bufio.NewReader(strings.NewReader(s))) }

const get = "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n"

// statuses gives heads and how they are refused; 0 is not at all.
func statuses() map[string]int {
	return map[string]int{
		get + "\r\n":                                                         0,
		"GET http://a/ HTTP/1.0\r\n\r\n":                                     0,
		"CONNECT a:1 HTTP/1.1\r\n\r\n":                                       0,
		get + "Transfer-Encoding: Chunked\r\n\r\n":                           0,
		get + "Expect: 100-Continue\r\n\r\n":                                 0,
		get + "X: \xff\xfe\r\n\r\n":                                          0,
		"get http://a/ HTTP/1.1\r\nHost: a\r\n\r\n":                          400,
		"GET  http://a/ HTTP/1.1\r\nHost: a\r\n\r\n":                         400,
		"GET\thttp://a/\tHTTP/1.1\r\nHost: a\r\n\r\n":                        400,
		"GET http://a/ b HTTP/1.1\r\nHost: a\r\n\r\n":                        400,
		"GET http://a/\x00 HTTP/1.1\r\nHost: a\r\n\r\n":                      400,
		"GET http://\xc3\xbc/ HTTP/1.1\r\nHost: a\r\n\r\n":                   400,
		"GET http://a/\r\n\r\n":                                              400,
		" GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n":                         400,
		"GET http://a/ http/1.1\r\nHost: a\r\n\r\n":                          400,
		"GET http://a/ HTTP/1.2\r\nHost: a\r\n\r\n":                          505,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                   505,
		"\r\nGET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n":                      400,
		"GET http://a/ HTTP/1.1\nHost: a\n\n":                                400,
		"GET http://a/ HTTP/1.1\r\nHost: a\nX: y\r\n\r\n":                    400,
		"GET http://a/ HTTP/1.1\r\nHost: a\rX: y\r\n\r\n":                    400,
		get + "X: a\r\n b\r\n\r\n":                                           400,
		get + "X : a\r\n\r\n":                                                400,
		get + ": a\r\n\r\n":                                                  400,
		get + "X\r\n\r\n":                                                    400,
		get + "X: a\x00b\r\n\r\n":                                            400,
		get + "X\xc3: a\r\n\r\n":                                             400,
		get + "Host: b\r\n\r\n":                                              400,
		"GET http://a/ HTTP/1.1\r\n\r\n":                                     400,
		get + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n":               400,
		get + "Content-Length: 5, 5\r\n\r\n":                                 400,
		get + "Content-Length: +5\r\n\r\n":                                   400,
		get + "Content-Length: -5\r\n\r\n":                                   400,
		get + "Content-Length: 0x5\r\n\r\n":                                  400,
		get + "Content-Length: \r\n\r\n":                                     400,
		get + "Content-Length: 99999999999999999999\r\n\r\n":                 400,
		get + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n":      400,
		get + "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n":   400,
		get + "Transfer-Encoding: gzip, chunked\r\n\r\n":                     501,
		get + "Transfer-Encoding: identity\r\n\r\n":                          501,
		"GET http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n":       400,
		get + "Expect: 200-ok\r\n\r\n":                                       400,
		get + "X: " + strings.Repeat("a", maxHead) + "\r\n\r\n":              431,
		get + strings.Repeat("X: a\r\n", maxFields) + "\r\n":                 431,
		"GET http://a/" + strings.Repeat("a", maxHead) + " HTTP/1.1\r\n\r\n": 431,
	}
}

func TestReadRequest(t *testing.T) {
	r, err := read("POST /x?y HTTP/1.1\r\nHost: a\r\nX-Two:  two words \t\r\nx-two:3\r\ncontent-length: 5\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if v, n := r.Fields.Get("x-two"); v != "two words" || n != 2 {
		t.Errorf("x-two: %q, %d", v, n)
	}
	if r.Method != "POST" || r.Target != "/x?y" || r.Minor != 1 || r.Framing != (Framing{Length, 5}) {
		t.Errorf("%+v", r)
	}
	for in, want := range statuses() {
		_, err := read(in)
		status := 0
		if r := (*gate.Refusal)(nil); errors.As(err, &r) {
			status = r.Status
		} else if err != nil {
			t.Errorf("%.80q: %v", in, err)
		}
		if status != want {
			t.Errorf("%.80q: %d (%v), want %d", in, status, err, want)
		}
	}
	if _, err := read(""); err != io.EOF {
		t.Errorf("nothing: %v", err)
	}
	for _, in := range []string{"GET", "GET http://a/ HTTP/1.1\r\n", get + "X: y"} {
		if _, err := read(in); err != io.ErrUnexpectedEOF {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestHead(t *testing.T) {
	r, err := read("POST http://a.example/x HTTP/1.1\r\nHost: evil\r\nConnection: X-Secret, close, Content-Length, Connection\r\n" +
		"X-Secret: s\r\nKeep-Alive: 5\r\nTE: trailers\r\nProxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\n" +
		"Upgrade: h2c\r\nHTTP2-Settings: AAA\r\nAuthorization: Bearer t\r\nX-Drop: 1\r\nContent-Length: 3\r\n\r\nabc")
	if err != nil {
		t.Fatal(err)
	}
	got := string(r.Head("/x", "a.example", func(key string) bool { return key == "x-drop" }, r.Websocket()))
	want := "POST /x HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer t\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestWebsocket(t *testing.T) {
	for in, want := range map[string]bool{
		"Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n":           true,
		"Connection: Upgrade\r\nUpgrade: h2c\r\n":                             false,
		"Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n":                  false,
		"Upgrade: websocket\r\n":                                              false,
		"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n":  false,
		"Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: websocket\r\n": false,
		"Connection: Upgrade\r\n":                                             false,
	} {
		r, err := read(get + in + "\r\n")
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Websocket(); got != want {
			t.Errorf("%q: %v", in, got)
		}
	}
}

func drain(s string, f Framing) (string, string, error) {
	br := bufio.NewReader(strings.NewReader(s))
	got, err := io.ReadAll(newBody(br, f))
	rest, _ := io.ReadAll(br)
	return string(got), string(rest), err
}

func TestBody(t *testing.T) {
	for _, c := range []struct {
		in         string
		f          Framing
		body, rest string
	}{
		{"abcdef", Framing{Length, 3}, "abc", "def"},
		{"abc", Framing{UntilClose, 0}, "abc", ""},
		{"abc", Framing{}, "", "abc"},
		{"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\nnext", Framing{Kind: Chunked}, "abc0123456789", "next"},
		{"0\r\nTrailer: x\r\n\r\nnext", Framing{Kind: Chunked}, "", "next"},
	} {
		if body, rest, err := drain(c.in, c.f); body != c.body || rest != c.rest || err != nil {
			t.Errorf("%q: %q, %q, %v", c.in, body, rest, err)
		}
	}
	for _, in := range []string{
		"3\nabc\r\n0\r\n\r\n", "3\r\nabc\n0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "3;x=y\r\nabc\r\n0\r\n\r\n", "3 \r\nabc\r\n0\r\n\r\n",
		"+3\r\nabc\r\n0\r\n\r\n", "-3\r\nabc\r\n0\r\n\r\n", "0x3\r\nabc\r\n0\r\n\r\n", "\r\n", "g\r\n", "1_0\r\n",
		"1000000000000000\r\n", "00000000000000003\r\nabc\r\n0\r\n\r\n", "0\r\nbad trailer\r\n\r\n", "0\r\nX: y\n\r\n",
		strings.Repeat("0", 300) + "\r\n",
	} {
		if body, _, err := drain(in, Framing{Kind: Chunked}); !errors.As(err, new(*gate.Refusal)) {
			t.Errorf("%q: %q, %v", in, body, err)
		}
	}
	for in, f := range map[string]Framing{
		"ab": {Length, 3}, "": {Kind: Chunked}, "3\r\nab": {Kind: Chunked}, "3\r\nabc": {Kind: Chunked}, "3\r\nabc\r\n": {Kind: Chunked}, "3": {Kind: Chunked}, "0\r\n": {Kind: Chunked},
	} {
		if _, _, err := drain(in, f); err != io.ErrUnexpectedEOF {
			t.Errorf("cut %q: %v", in, err)
		}
	}
}

func TestCopyBodyWritesChunks(t *testing.T) {
	watch := gate.NewIdle(nil, time.Minute, func() {})
	defer watch.Stop()
	text := strings.Repeat("0123456789", 10000)
	for _, chunked := range []bool{true, false} {
		var out strings.Builder
		n, err := copyBody(&out, strings.NewReader(text), chunked, watch)
		if err != nil || n != int64(len(text)) {
			t.Fatalf("%d, %v", n, err)
		}
		got, rest := out.String(), ""
		if chunked {
			got, rest, err = drain(got, Framing{Kind: Chunked})
		}
		if got != text || rest != "" || err != nil {
			t.Errorf("chunked %v: %d bytes, %q, %v", chunked, len(got), rest, err)
		}
	}
}

func TestReadResponse(t *testing.T) {
	for _, c := range []struct {
		in, method string
		framing    Framing
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "GET", Framing{Length, 3}},
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD", Framing{Described, 3}},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HEAD", Framing{}},
		{"HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n", "GET", Framing{Described, 3}},
		{"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n", "GET", Framing{}},
		{"HTTP/1.1 200\r\n\r\n", "GET", Framing{Kind: UntilClose}},
		{"HTTP/1.0 200 OK\r\n\r\n", "GET", Framing{Kind: UntilClose}},
	} {
		r, err := readResponse(bufio.NewReader(strings.NewReader(c.in)), c.method)
		if err != nil || r.framing != c.framing {
			t.Errorf("%q: %+v, %v", c.in, r, err)
		}
	}
	for _, in := range []string{
		"", "HTTP/1.1 200 OK\r\n", "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 +20 OK\r\n\r\n", "ICY 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\nX: y\n\n",
	} {
		if r, err := readResponse(bufio.NewReader(strings.NewReader(in)), "GET"); err == nil {
			t.Errorf("%q: %+v", in, r)
		}
	}
}

func TestResponseHeadCannotForgeARefusal(t *testing.T) {
	in := "HTTP/1.1 200 OK\x01\r\nX-Botbox-Refused: metadata\r\nProxy-Status: botbox; error=x\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-Keep: 1\r\nContent-Length: 0\r\n\r\n"
	r, err := readResponse(bufio.NewReader(strings.NewReader(in)), "GET")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(r.head(1, true, false)), "HTTP/1.1 200 OK\r\nX-Keep: 1\r\nContent-Length: 0\r\n\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzReadRequest(f *testing.F) {
	for _, s := range []string{get + "\r\n", "CONNECT a:1 HTTP/1.1\r\n\r\n", get + "Content-Length: 5\r\n\r\nhello", get + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := read(s)
		if err != nil {
			return
		}
		if strings.ContainsAny(r.Method+r.Target, " \r\n\t\x00") {
			t.Errorf("%q: %q %q", s, r.Method, r.Target)
		}
		// What we would send must read as the same request again.
		head := string(r.Head(r.Target, "host", func(string) bool { return false }, false))
		again, err := read(head)
		if err != nil || again.Method != r.Method || again.Target != r.Target || again.Framing != r.Framing {
			t.Errorf("%q gives %q, which reads as %+v, %v", s, head, again, err)
		}
	})
}

func FuzzBody(f *testing.F) {
	for _, s := range []string{"3\r\nabc\r\n0\r\n\r\n", "0\r\nX: y\r\n\r\nrest", "3\nabc"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		body, rest, err := drain(s, Framing{Kind: Chunked})
		if err != nil {
			return
		}
		encoded := "0\r\n\r\n"
		if body != "" {
			encoded = fmt.Sprintf("%x\r\n%s\r\n%s", len(body), body, encoded)
		}
		if again, left, err := drain(encoded, Framing{Kind: Chunked}); again != body || left != "" || err != nil {
			t.Errorf("%q: %q, %q, %v", s, again, left, err)
		}
		if !strings.HasSuffix(s, rest) {
			t.Errorf("%q leaves %q", s, rest)
		}
	})
}

func FuzzReadResponse(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "GET")
	f.Fuzz(func(t *testing.T, s, method string) {
		r, err := readResponse(bufio.NewReader(strings.NewReader(s)), method)
		if err != nil {
			return
		}
		head := string(r.head(1, true, false))
		again, err := readResponse(bufio.NewReader(strings.NewReader(head)), method)
		if err != nil || again.status != r.status {
			t.Errorf("%q gives %q: %v", s, head, err)
		}
	})
}
