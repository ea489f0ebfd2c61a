package harness

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// answering is an upstream that reads the head first.
func answering(f func(c net.Conn, br *bufio.Reader)) gatetest.Script {
	return func(o *gatetest.Origin, c net.Conn, br *bufio.Reader) {
		o.Head(br)
		f(c, br)
	}
}

var ok = answering(func(c net.Conn, _ *bufio.Reader) {
	io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
})

// start runs a gate in front of the server s, where the options name no other.
func start(t *testing.T, s *gatetest.Origin, o Options) (address string, g *Gate) {
	t.Helper()
	if o.Upstream == "" {
		o.Upstream = "tcp:" + s.Listener.Addr().String()
	}
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return gatetest.Start(t, g), g
}

// smuggled is every way out of /api/internal/ that we know of.
var smuggled = []string{
	"/", "/api", "/api/", "/api/internal", "/api/internal?x", "/api/config", "/api/internals/x", "/API/internal/x", "/api/Internal/x",
	"/api/internal/../config", "/api/internal/x/../../config", "/api/internal/..", "/api/internal/x/..", "/api/internal/./x", "/api/internal/.",
	"/api/internal/%2e%2e/config", "/api/internal/%2E%2E/config", "/api/internal/.%2e/config", "/api/internal/%2e./config", "/api/internal/%2e/x",
	"/api/internal//../../config", "/api/internal//x", "/api/internal/x//y", "/api/internal///",
	"/api/internal%2fx", "/api%2finternal/x", "/%61pi/internal/x", "/api/%69nternal/x", "/api/internal/x%2fy", "/api/internal/x%2Fy", "/api/internal/%2f..%2fconfig",
	"/api//internal/x", "//api/internal/x", "/./api/internal/x", "/x/../api/internal/x",
	"/api/internal/x%3f/../../config", "/api/internal/x?/../../config#f", "/api/internal/x#/../../config", "/api/internal/#",
	"//evil/api/internal/x", "/\\evil/api/internal/x", "http://evil/api/internal/x", "http://localhost/api/internal/x", "https://evil/api/internal/x",
	"evil:80", "*", "api/internal/x", "?/api/internal/", "@evil/api/internal/x", ":80/api/internal/x",
	"/api/internal\\..\\config", "/api/internal/\\..\\config", "/api/internal/..\\config", "/api/internal/%5c..%5cconfig", "/api/internal/%5C",
	"/api/internal/;/../x", "/api/internal/..;/config", "/api/internal/x;y", "/api/internal/%00", "/api/internal/x%00/..", "/api/internal/%0d%0aHost:x",
	"/api/internal/%09", "/api/internal/%1f", "/api/internal/%7f", "/api/internal/%", "/api/internal/%2", "/api/internal/%zz", "/api/internal/%u002e",
	"/api/internal/%25%32%65%25%32%65/config", "/api/internal/%252e%252e/config", "/api/internal/%c0%ae%c0%ae\\config",
	"/api/internal/x|y", "/api/internal/<x>", "/api/internal/\"x\"", "/api/internal/{x}", "/api/internal/^", "/api/internal/`",
	"/api/internal/" + strings.Repeat("a", maxPath), "/api/internal/x?" + strings.Repeat("a", maxQuery+1),
}

var plain = []string{
	"/api/internal/", "/api/internal/x", "/api/internal/x/", "/api/internal/a/b.c/d-e_f~g", "/api/internal/x?y=/../..&z=%2e%2e", "/api/internal/x?a?b",
	"/api/internal/...", "/api/internal/.x/..y/z..", "/api/internal/a%20b%C3%BC%3F", "/api/internal/a@b:c,d=e+f$g&h'i(j)k*l!m", "/api/internal/x?q=\"<>|\\",
}

func TestCorpus(t *testing.T) {
	s := gatetest.NewOrigin(t, ok)
	var log gatetest.Log[Decision]
	address, g := start(t, s, Options{Box: "box-1", Log: log.Add})
	for _, target := range smuggled {
		answer := gatetest.Ask(t, address, "GET "+target+" HTTP/1.1\r\nHost: x\r\n\r\n")
		if !strings.HasPrefix(answer, "HTTP/1.1 403 botbox: ") || !strings.Contains(answer, "\r\nX-Botbox-Refused: path\r\n") {
			t.Errorf("%.80q: %q", target, answer)
		}
	}
	for _, method := range []string{"CONNECT", "TRACE", "PROPFIND", "DEBUG", "TRACK"} {
		answer := gatetest.Ask(t, address, method+" /api/internal/x HTTP/1.1\r\nHost: x\r\n\r\n")
		if !strings.HasPrefix(answer, "HTTP/1.1 403 ") {
			t.Errorf("%s: %q", method, answer)
		}
	}
	for _, raw := range []string{
		"GET /api/internal/a b HTTP/1.1\r\nHost: x\r\n\r\n", "GET /api/internal/\xc3\xbc HTTP/1.1\r\nHost: x\r\n\r\n", "GET /api/internal/\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /api/internal/ HTTP/1.1\nHost: x\n\n", "get /api/internal/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /api/internal/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		if answer := gatetest.Ask(t, address, raw); !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
			t.Errorf("%q: %q", raw, answer)
		}
	}
	if n := s.Contacts(); n != 0 {
		t.Fatalf("the server was contacted %d times", n)
	}
	for _, target := range plain {
		if answer := gatetest.Ask(t, address, "GET "+target+" HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 200 OK\r\n") {
			t.Errorf("%q: %q", target, answer)
		}
		if line, _, _ := strings.Cut(s.LastHead(), "\r\n"); line != "GET "+target+" HTTP/1.1" {
			t.Errorf("%q arrives as %q", target, line)
		}
	}
	if n := s.Contacts(); n != int64(len(plain)) {
		t.Errorf("%d connections for %d requests", n, len(plain))
	}
	g.Close()
	for _, d := range log.All() {
		if d.Box != "box-1" || d.Method != "harness" || d.Host != "" || d.Class == "" || d.Allowed != (d.Status == 200) {
			t.Errorf("%+v", d)
		}
	}
	if len(log.All()) != len(smuggled)+5+6+len(plain) {
		t.Errorf("%d decisions", len(log.All()))
	}
}

func TestWhatTheServerSees(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s := gatetest.Serve(gatetest.Listen(t, socket), ok)
	address, _ := start(t, s, Options{Upstream: "unix:" + socket, Host: "127.0.0.1:8799"})
	gatetest.Ask(t, address, "POST /api/internal/mcp?a=%2e HTTP/1.1\r\nHost: evil\r\nAuthorization: Bearer t\r\nMcp-Session-Id: 7\r\nX-Keep: 1\r\n"+
		"Cookie: a=b\r\nX-Forwarded-For: 1.1.1.1\r\nX_Forwarded_Host: x\r\nX-Forwarded: x\r\nForwarded: for=1.1.1.1\r\nX-Real-IP: 1.1.1.1\r\nVia: x\r\n"+
		"Proxy-Authorization: Basic x\r\nX-HTTP-Method-Override: DELETE\r\nX-Original-URL: /api/config\r\nX-Secret: s\r\n"+
		"Connection: X-Secret, Upgrade\r\nUpgrade: websocket\r\nKeep-Alive: 5\r\nTE: trailers\r\nContent-Length: 2\r\n\r\nhi")
	want := "POST /api/internal/mcp?a=%2e HTTP/1.1\r\nHost: 127.0.0.1:8799\r\nAuthorization: Bearer t\r\nMcp-Session-Id: 7\r\nX-Keep: 1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
	if got := s.LastHead(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A cookie passes in neither direction, whatever else the server answers.
func TestNoCookieComesBack(t *testing.T) {
	s := gatetest.NewOrigin(t, answering(func(c net.Conn, _ *bufio.Reader) {
		io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nSet-Cookie: early=canary\r\nX-Early: 1\r\n\r\n"+
			"HTTP/1.1 200 OK\r\nSet-Cookie: a=canary\r\nset-cookie: b=canary\r\nSet_Cookie: c=canary\r\nSet-Cookie2: d=canary\r\nMcp-Session-Id: 7\r\nContent-Length: 2\r\n\r\nok")
	}))
	address, _ := start(t, s, Options{})
	answer := gatetest.Ask(t, address, "GET /api/internal/x HTTP/1.1\r\nHost: x\r\n\r\n")
	if strings.Contains(answer, "canary") || !strings.Contains(answer, "X-Early: 1\r\n") || !strings.Contains(answer, "Mcp-Session-Id: 7\r\n") || !strings.HasSuffix(answer, "\r\n\r\nok") {
		t.Errorf("%q", answer)
	}
}

// The gate's word is the last one about each request of a connection, and of
// two requests in one packet.
func TestPipelinedRequestsAreJudgedOneByOne(t *testing.T) {
	s := gatetest.NewOrigin(t, ok)
	address, _ := start(t, s, Options{})
	good, bad := "GET /api/internal/x HTTP/1.1\r\nHost: x\r\n\r\n", "GET /api/config HTTP/1.1\r\nHost: x\r\n\r\n"
	answer := gatetest.Ask(t, address, good+bad+good)
	if strings.Count(answer, "HTTP/1.1 200 OK\r\n") != 1 || strings.Count(answer, "HTTP/1.1 403 ") != 1 || s.Contacts() != 1 {
		t.Errorf("%d contacts: %q", s.Contacts(), answer)
	}
	// A body that holds a request is a body.
	gatetest.Ask(t, address, fmt.Sprintf("POST /api/internal/y HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(bad), bad))
	if !strings.HasPrefix(s.LastHead(), "POST /api/internal/y ") || s.Contacts() != 2 {
		t.Errorf("%q, %d contacts", s.LastHead(), s.Contacts())
	}
	for _, two := range []string{"Host: x\r\nHost: y", "Content-Length: 1\r\nContent-Length: 2", "Content-Length: 0\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked"} {
		head := "POST /api/internal/z HTTP/1.1\r\n" + two + "\r\n"
		if !strings.Contains(two, "Host") {
			head += "Host: x\r\n"
		}
		if answer := gatetest.Ask(t, address, head+"\r\n0\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 400 ") && !strings.HasPrefix(answer, "HTTP/1.1 501 ") || s.Contacts() != 2 {
			t.Errorf("%q: %q", two, answer)
		}
	}
}

func TestEventsAreNotHeldBack(t *testing.T) {
	next := make(chan struct{})
	s := gatetest.NewOrigin(t, answering(func(c net.Conn, _ *bufio.Reader) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		for range 3 {
			io.WriteString(c, "9\r\ndata: x\n\n\r\n")
			<-next
		}
		io.WriteString(c, "0\r\n\r\n")
	}))
	address, _ := start(t, s, Options{})
	resp, err := http.Get("http://" + address + "/api/internal/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	event := make([]byte, 9)
	for range 3 {
		if _, err := io.ReadFull(resp.Body, event); err != nil || string(event) != "data: x\n\n" {
			t.Fatalf("%q, %v", event, err)
		}
		next <- struct{}{} // only now does the server go on
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestBodyLimitAndKeepAlive(t *testing.T) {
	s := gatetest.NewOrigin(t, answering(func(c net.Conn, br *bufio.Reader) {
		// Chunked bodies only; the answer says how much came.
		n, err := io.Copy(io.Discard, newChunked(br))
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nX-Err: %v\r\nX-Body: %d\r\nContent-Length: 0\r\n\r\n", err, n)
	}))
	address, _ := start(t, s, Options{MaxBody: 1000})
	client := &http.Client{}
	defer client.CloseIdleConnections()
	post := func(n int, chunked bool) *http.Response {
		t.Helper()
		var body io.Reader = bytes.NewReader(make([]byte, n))
		if chunked {
			body = io.MultiReader(body)
		}
		resp, err := client.Post("http://"+address+"/api/internal/x", "x/y", body)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	for range 2 {
		if resp := post(1000, true); resp.StatusCode != 200 || resp.Header.Get("X-Body") != "1000" {
			t.Errorf("at the limit: %v %v", resp.Status, resp.Header)
		}
	}
	before := s.Contacts()
	if resp := post(1001, false); resp.StatusCode != 413 || s.Contacts() != before {
		t.Errorf("a length above the limit: %v, %d contacts", resp.Status, s.Contacts()-before)
	}
	if resp := post(5000, true); resp.StatusCode != 413 {
		t.Errorf("chunks above the limit: %v %v", resp.Status, resp.Header)
	}
}

func newChunked(br *bufio.Reader) io.Reader {
	req, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"), br)))
	if err != nil {
		return strings.NewReader("")
	}
	return req.Body
}

func TestServerIsAway(t *testing.T) {
	upstream := "tcp:" + gatetest.Closed(t).String()
	address, _ := start(t, nil, Options{Upstream: upstream})
	answer := gatetest.Ask(t, address, "GET /api/internal/x HTTP/1.1\r\nHost: x\r\n\r\n")
	if !strings.HasPrefix(answer, "HTTP/1.1 502 botbox: the server does not answer\r\n") || strings.Contains(answer, upstream[4:]) {
		t.Errorf("%q", answer)
	}
}

func TestCloseEndsExchanges(t *testing.T) {
	reached := make(chan struct{})
	s := gatetest.NewOrigin(t, answering(func(c net.Conn, br *bufio.Reader) {
		close(reached)
		io.Copy(io.Discard, br)
	}))
	address, g := start(t, s, Options{})
	c := gatetest.Dial(t, address)
	io.WriteString(c, "GET /api/internal/x HTTP/1.1\r\nHost: x\r\n\r\n")
	<-reached
	g.Close() // would wait for ever if the silent server held it
	if got, _ := io.ReadAll(c); strings.Contains(string(got), "200") {
		t.Errorf("%q", got)
	}
}

func TestNewRefusesOtherUpstreams(t *testing.T) {
	for _, upstream := range []string{"", "tcp:", "tcp:localhost:80", "tcp:127.0.0.1", "unix:", "unix:rel", "udp:127.0.0.1:80", "127.0.0.1:80"} {
		if _, err := New(Options{Upstream: upstream}); err == nil || reason.Of(err).Code != reason.BadSetting {
			t.Errorf("%q: %v", upstream, err)
		}
	}
	for _, upstream := range []string{"tcp:127.0.0.1:8799", "tcp:[::1]:8799", "unix:/run/x"} {
		if _, err := New(Options{Upstream: upstream}); err != nil {
			t.Errorf("%q: %v", upstream, err)
		}
	}
}

// What passes means the same path to a reader that takes it as it is, to one
// that decodes, to one that cleans, and to one that does both.
func FuzzJudge(f *testing.F) {
	for _, target := range append(append([]string{}, smuggled...), plain...) {
		f.Add("GET", target)
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		if judge(method, target) != nil {
			return
		}
		raw, _, _ := strings.Cut(target, "?")
		decoded, err := url.PathUnescape(raw)
		if err != nil {
			t.Fatalf("%q does not decode: %v", target, err)
		}
		again, err := url.PathUnescape(decoded)
		if err == nil && again != decoded {
			t.Errorf("%q decodes twice", target)
		}
		for _, p := range []string{raw, decoded} {
			trimmed := strings.TrimSuffix(p, "/")
			if !strings.HasPrefix(p, prefix) || path.Clean(p) != trimmed || strings.ContainsAny(p, "\\;#\x00") && p == raw {
				t.Errorf("%q passes, and reads as %q or %q", target, p, path.Clean(p))
			}
		}
		if strings.Count(raw, "/") != strings.Count(decoded, "/") || strings.Contains(decoded, "\\") {
			t.Errorf("%q hides a separator", target)
		}
	})
}
