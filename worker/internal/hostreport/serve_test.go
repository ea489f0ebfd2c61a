package hostreport

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/worker/internal/api"
	"github.com/openmausbot/botbox/worker/internal/report"
)

const patience = 20 * time.Second

// doorway is a listener whose connections come from whatever CID a test says:
// the kernel's own are tried in a virtual machine (testbed/vm).
type doorway struct {
	conns chan net.Conn
	fails chan error
	shut  chan struct{}
	once  sync.Once
}

func (d *doorway) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case err := <-d.fails:
		return nil, err
	case <-d.shut:
		return nil, net.ErrClosed
	}
}

func (d *doorway) Close() error   { d.once.Do(func() { close(d.shut) }); return nil }
func (d *doorway) Addr() net.Addr { return &vsock.Addr{ContextID: 3, Port: 5005} }

// from is a connection with a peer's address.
type from struct {
	net.Conn
	peer net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.peer }

// house is a server on a doorway, with what it wrote into its log.
type house struct {
	*doorway
	key ed25519.PrivateKey
	mu  sync.Mutex
	log bytes.Buffer
}

func (h *house) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.Write(p)
}

func (h *house) logged() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.String()
}

func open(t *testing.T, routes http.Handler) *house {
	t.Helper()
	h := &house{doorway: &doorway{conns: make(chan net.Conn), fails: make(chan error), shut: make(chan struct{})}, key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))}
	if routes == nil {
		routes = api.ReportOnly(func(nonce string) (report.Signed, error) {
			return report.Signer{Key: h.key}.Sign(report.Report{Box: "bwrap", Checks: "1/1"}, nonce, time.Now())
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, h, routes, slog.New(slog.NewTextHandler(h, nil))) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("the server does not end")
		}
	})
	return h
}

// visit connects from an address.
func (h *house) visit(t *testing.T, peer net.Addr) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	ours.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { ours.Close() })
	select {
	case h.conns <- from{theirs, peer}:
	case <-time.After(patience):
		t.Fatal("the connection is not accepted")
	}
	return ours
}

// ask sends a request and gives all that comes back.
func (h *house) ask(t *testing.T, peer net.Addr, request string) string {
	t.Helper()
	c := h.visit(t, peer)
	go io.WriteString(c, request) // who is refused is not read
	answer, _ := io.ReadAll(c)
	return string(answer)
}

func cid(n uint32) net.Addr { return &vsock.Addr{ContextID: n, Port: 1023} }

var host = cid(vsock.Host)

const (
	nonce = "the-hosts-own-nonce_1"
	good  = "GET /v1/report?nonce=" + nonce + " HTTP/1.0\r\n\r\n"
)

// What comes is the report that verifies, byte for byte, with the nonce of who
// asked, and the connection ends.
func TestTheHostGetsTheSignedReport(t *testing.T) {
	h := open(t, nil)
	for _, request := range []string{good,
		"GET /v1/report?nonce=" + nonce + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/report?nonce=" + nonce + " HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
	} {
		head, body, _ := strings.Cut(h.ask(t, host, request), "\r\n\r\n")
		if !strings.Contains(head, " 200 OK\r\n") || strings.Contains(head, "chunked") {
			t.Fatalf("%q: %s\n%s", request, head, body)
		}
		v, err := report.Verify([]byte(body), report.Known{Key: h.key.Public().(ed25519.PublicKey), Nonce: nonce})
		if err != nil || v.Report.Checks != "1/1" {
			t.Errorf("%q: %v %+v", request, err, v)
		}
	}
	if said := h.logged(); said != "" {
		t.Errorf("the host is logged: %s", said)
	}
}

// A client that closes its half behind the request, as socat does at the end of
// its input, gets the whole answer.
func TestTheHostMayCloseItsHalf(t *testing.T) {
	h := open(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0") // net.Pipe has no halves
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ours.SetDeadline(time.Now().Add(patience))
	io.WriteString(ours, good)
	ours.(*net.TCPConn).CloseWrite()
	h.conns <- from{theirs, host}
	answer, err := io.ReadAll(ours)
	if err != nil || !strings.Contains(string(answer), " 200 OK\r\n") || !strings.Contains(string(answer), `"ed25519":"`) {
		t.Errorf("%v %q", err, answer)
	}
}

// Everybody else gets not one byte, whatever is asked, and is named in the log.
func TestNobodyElseGetsAnything(t *testing.T) {
	h := open(t, nil)
	for name, peer := range map[string]net.Addr{
		"the hypervisor": cid(vsock.Hypervisor), "this machine": cid(vsock.Local), "this machine's number": cid(3), "a sibling": cid(4),
		"any": cid(1<<32 - 1), "the host's number and more": cid(vsock.Host + 1<<16),
		"TCP": &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2}, "a unix socket": &net.UnixAddr{Name: "2", Net: "unix"}, "nobody": nil,
	} {
		if got := h.ask(t, peer, good); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := h.ask(t, host, good); !strings.Contains(got, " 200 OK\r\n") {
		t.Errorf("positive control, the host: %q", got)
	}
	if said := h.logged(); !strings.Contains(said, "report-refused") || !strings.Contains(said, "times=1") {
		t.Errorf("logged: %q", said)
	}
}

// There is no other route, and no longer request.
func TestOneRouteOnly(t *testing.T) {
	h := open(t, nil)
	for request, want := range map[string]string{
		"GET /v1/report HTTP/1.0\r\n\r\n":                                           "200",
		"GET / HTTP/1.0\r\n\r\n":                                                    "404",
		"GET /v1/boxes HTTP/1.0\r\n\r\n":                                            "404",
		"GET /api/cloud/box HTTP/1.0\r\n\r\n":                                       "404",
		"GET /v1/events HTTP/1.0\r\n\r\n":                                           "404",
		"GET /metrics HTTP/1.0\r\n\r\n":                                             "404",
		"GET /v1/report/ HTTP/1.0\r\n\r\n":                                          "404",
		"GET //v1/report HTTP/1.0\r\n\r\n":                                          "404",
		"GET /v1/boxes/../report HTTP/1.0\r\n\r\n":                                  "404",
		"HEAD /v1/report HTTP/1.0\r\n\r\n":                                          "404",
		"POST /v1/report HTTP/1.0\r\n\r\n":                                          "404",
		"POST /v1/selfcheck HTTP/1.0\r\n\r\n":                                       "404",
		"DELETE /v1/boxes/x HTTP/1.0\r\n\r\n":                                       "404",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n":                                     "404",
		"CONNECT /v1/report HTTP/1.1\r\nHost: x\r\n\r\n":                            "404",
		"GET /v1/report?nonce=short HTTP/1.0\r\n\r\n":                               "400",
		"GET /v1/report?nonce= HTTP/1.0\r\n\r\n":                                    "400",
		"GET /v1/report?x=1 HTTP/1.0\r\n\r\n":                                       "400",
		"GET /v1/report HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc":                   "400",
		"GET /v1/report HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n":  "400",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                          "404",
		"report\r\n\r\n":                                                            "400",
		"\x00\x01\x02\x03\r\n\r\n":                                                  "400",
		"GET /v1/report HTTP/1.0\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n": "431",
	} {
		got := h.ask(t, host, request)
		if !strings.HasPrefix(got, "HTTP/1.") || len(got) < 12 || got[9:12] != want {
			t.Errorf("%.60q: %.200q, want %s", request, got, want)
		}
		_, body, _ := strings.Cut(got, "\r\n\r\n")
		if want != "200" && strings.Contains(body, "ed25519") {
			t.Errorf("%.60q: a report all the same", request)
		}
		if want == "404" {
			var fault map[string]string
			if strings.HasPrefix(request, "HEAD") {
				continue
			}
			if err := json.Unmarshal([]byte(body), &fault); err != nil || fault["code"] != "no-such-route" {
				t.Errorf("%.60q: %q", request, body)
			}
		}
	}
	// What comes behind a request is not read as another one.
	kept := strings.Replace(good, "HTTP/1.0\r\n", "HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n", 1)
	for _, request := range []string{good, kept} {
		if got := h.ask(t, host, request+request); strings.Count(got, "HTTP/1.") != 1 {
			t.Errorf("two requests on one connection: %.300q", got)
		}
	}
}

// Who says nothing is let go, and holds nobody else up for longer.
func TestTheHostCannotStay(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	begin := time.Now()
	for range maxConns {
		c := h.visit(t, host)
		go io.WriteString(c, "GET /v1/report HTTP/1.0\r\nX: ")
	}
	if got := h.ask(t, host, good); !strings.Contains(got, " 200 OK\r\n") {
		t.Errorf("after %v: %q", time.Since(begin), got)
	}
	if took := time.Since(begin); took < requestWithin/2 || took > patience/2 {
		t.Errorf("the fifth was served after %v; the four before it may take %v", took, requestWithin)
	}
}

// Who asks and does not read is let go, too.
func TestTheHostMustRead(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	begin := time.Now()
	for range maxConns {
		io.WriteString(h.visit(t, host), good)
	}
	if got := h.ask(t, host, good); !strings.Contains(got, " 200 OK\r\n") {
		t.Errorf("after %v: %q", time.Since(begin), got)
	}
	if took := time.Since(begin); took < answerWithin/2 {
		t.Errorf("the fifth was served after %v; the four before it may take %v", took, answerWithin)
	}
}

// A machine that runs out of descriptors for a while serves its host afterwards.
func TestAcceptMayFailForAWhile(t *testing.T) {
	h := open(t, nil)
	for range maxConns + 1 {
		h.fails <- &net.OpError{Op: "accept", Net: "vsock", Err: os.NewSyscallError("accept4", unix.EMFILE)}
	}
	if got := h.ask(t, host, good); !strings.Contains(got, " 200 OK\r\n") {
		t.Errorf("%q", got)
	}
}

// No more than a few are served at a time, and strangers take no place.
func TestFewAtATime(t *testing.T) {
	inside, open4 := make(chan struct{}, 2*maxConns), make(chan struct{})
	h := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside <- struct{}{}
		<-open4
		fmt.Fprint(w, "served")
	}))
	ends := make(chan string, 2*maxConns)
	visitor := func(peer net.Addr) {
		ours, theirs := net.Pipe()
		h.conns <- from{theirs, peer}
		go io.WriteString(ours, good)
		text, _ := io.ReadAll(ours)
		ends <- string(text)
	}
	for range maxConns - 1 {
		go visitor(host)
		<-inside
	}
	go visitor(cid(4))
	if got := <-ends; got != "" {
		t.Errorf("a stranger: %q", got)
	}
	for range 2 {
		go visitor(host)
	}
	<-inside
	select {
	case <-inside:
		t.Errorf("%d are served at a time", maxConns+1)
	case <-time.After(200 * time.Millisecond):
	}
	close(open4)
	for range maxConns + 1 {
		if got := <-ends; !strings.HasSuffix(got, "served") {
			t.Errorf("in the end: %q", got)
		}
	}
}

// The log gets a line a second, and all who were refused are in its numbers.
func TestStrangersCannotFloodTheLog(t *testing.T) {
	h := open(t, nil)
	const many = 500
	begin := time.Now()
	for range many {
		h.ask(t, cid(1), "")
	}
	sum := func() (lines, times int) {
		for line := range strings.Lines(h.logged()) {
			var n int
			_, rest, _ := strings.Cut(line, "times=")
			fmt.Sscan(rest, &n)
			lines, times = lines+1, times+n
			if !strings.Contains(line, "cid=1 ") {
				t.Fatalf("%q", line)
			}
		}
		return lines, times
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, times := sum(); times == many {
			break
		}
	}
	if lines, times := sum(); times != many || lines < 2 || lines > 2+int(time.Since(begin)/everySecond) {
		t.Errorf("%d in %d lines, want %d; took %v", times, lines, many, time.Since(begin))
	}
}
