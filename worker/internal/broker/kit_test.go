package broker

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/secret"
)

const (
	anthropicKey = "sk-ant-canary-0123456789abcdef"
	openaiKey    = "sk-openai-canary/0123456789+abc"
	geminiKey    = "gm-canary-0123456789abcdef"
)

// seen is one request as the upstream got it.
type seen struct {
	Method, URI, Host string
	Header            http.Header
	Body              []byte
}

// upstream is a real HTTP server that writes down what it got.
type upstream struct {
	*httptest.Server
	mu   sync.Mutex
	log  []seen
	then http.HandlerFunc // answers after the request was written down
}

func newUpstream(t testing.TB) *upstream {
	u := newVendor(t)
	u.Start()
	return u
}

// newVendor is an upstream that has not started.
func newVendor(t testing.TB) *upstream {
	u := &upstream{}
	u.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		u.mu.Lock()
		u.log = append(u.log, seen{r.Method, r.RequestURI, r.Host, r.Header.Clone(), body})
		then := u.then
		u.mu.Unlock()
		if then != nil {
			then(w, r)
			return
		}
		io.WriteString(w, `{"ok":true}`)
	}))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) requests() []seen {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]seen(nil), u.log...)
}

func (u *upstream) last(t *testing.T) seen {
	t.Helper()
	log := u.requests()
	if len(log) == 0 {
		t.Fatal("the upstream saw no request")
	}
	return log[len(log)-1]
}

// stage is a broker with its events, dials and clock.
type stage struct {
	*Broker
	t      testing.TB
	mu     sync.Mutex
	events []Event
	dials  []string
	clock  time.Time
}

func newStage(t testing.TB, store *Store) *stage {
	s := &stage{t: t, clock: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}
	transport := newTransport()
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		s.mu.Lock()
		s.dials = append(s.dials, addr)
		s.mu.Unlock()
		return dial(ctx, network, addr)
	}
	b, err := New(Options{
		BootKey: [32]byte{1}, Store: store, Transport: newUpstreams(transport),
		Log: func(e Event) {
			s.mu.Lock()
			s.events = append(s.events, e)
			s.mu.Unlock()
		},
		Now: func() time.Time {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.clock
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Broker = b
	t.Cleanup(b.Close)
	return s
}

func (s *stage) advance(d time.Duration) {
	s.mu.Lock()
	s.clock = s.clock.Add(d)
	s.mu.Unlock()
}

// heard gives the events so far.
func (s *stage) heard() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

func (s *stage) kinds() map[Kind]int {
	n := map[Kind]int{}
	for _, e := range s.heard() {
		n[e.Kind]++
	}
	return n
}

// connections gives how many of a box's connections are counted. Those of
// other boxes may end meanwhile.
func (s *stage) connections(box string) int {
	s.Broker.mu.Lock()
	defer s.Broker.mu.Unlock()
	return len(s.conns[box])
}

// await waits until an event of the kind was logged: a request's event comes
// after its last byte.
func (s *stage) await(kind Kind, match func(Event) bool) Event {
	s.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		for _, e := range s.events {
			if e.Kind == kind && match(e) {
				s.mu.Unlock()
				return e
			}
		}
		s.mu.Unlock()
	}
	s.t.Fatalf("no %s event came, of %+v", kind, s.heard())
	return Event{}
}

// serve opens a listener for box and gives its address.
func (s *stage) serve(box string) string {
	s.t.Helper()
	return s.open(func(l net.Listener) error { return s.Serve(l, box) })
}

// open returns when serve waits for connections: a broker that is closed
// before refuses to serve at all, which the test of that shows.
func (s *stage) open(serve func(net.Listener) error) string {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	accepts, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- serve(&firstAccept{Listener: l, accepts: accepts}) }()
	select {
	case <-accepts:
	case err := <-done:
		l.Close()
		s.t.Fatalf("the listener is not served: %v", err)
	}
	s.t.Cleanup(func() {
		l.Close()
		if err := <-done; err != nil {
			s.t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}

// firstAccept tells when somebody begins to wait for connections.
type firstAccept struct {
	net.Listener
	once    sync.Once
	accepts chan struct{}
}

func (l *firstAccept) Accept() (net.Conn, error) {
	l.once.Do(func() { close(l.accepts) })
	return l.Listener.Accept()
}

// vendors leads the connections to the vendors' own hosts to up, over TLS: a
// grant for them is one whose upstream echoes nothing.
func (s *stage) vendors(up *upstream) {
	up.EnableHTTP2 = true
	up.StartTLS()
	transport := s.Broker.transport.(*upstreams).Transport
	roots := x509.NewCertPool()
	roots.AddCert(up.Certificate())
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "example.com"}
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		for i := range providers {
			if strings.HasPrefix(providers[i].base, "https://"+strings.TrimSuffix(addr, ":443")) {
				return dial(ctx, network, up.Listener.Addr().String())
			}
		}
		return nil, fmt.Errorf("%s is no vendor's", addr)
	}
}

// issueVendor gives a token for a box with all keys at the vendors' own.
func (s *stage) issueVendor(box string, limits Limits) string {
	s.t.Helper()
	keys := testKeys("")
	for i := range keys {
		p, _ := providerNamed(keys[i].Provider)
		keys[i].Upstream = p.base
	}
	issued, err := s.Issue(Turn{Box: box, Engine: "none", Keys: keys, Limits: limits})
	if err != nil {
		s.t.Fatal(err)
	}
	return issued.Env["ANTHROPIC_API_KEY"]
}

// issue gives the token for a box with all three keys at one upstream.
func (s *stage) issue(box, upstream string) (token string, issued Issued) {
	s.t.Helper()
	issued, err := s.Issue(Turn{Box: box, Bot: "bot", Conversation: "talk", Engine: "none", Keys: testKeys(upstream)})
	if err != nil {
		s.t.Fatal(err)
	}
	return issued.Env["ANTHROPIC_API_KEY"], issued
}

func testKeys(upstream string) []Key {
	return []Key{
		{Provider: "anthropic", EnvName: "ANTHROPIC_API_KEY", Secret: secret.New(anthropicKey), Upstream: upstream},
		{Provider: "openai", EnvName: "OPENAI_API_KEY", Secret: secret.New(openaiKey), Upstream: upstream + "/v1"},
		{Provider: "gemini", EnvName: "GEMINI_API_KEY", Secret: secret.New(geminiKey), Upstream: upstream},
	}
}

// answer is a response, read to its end.
type answer struct {
	status int
	header http.Header
	body   string
	close  bool // "Connection: close"
}

// send makes one request with the target exactly as given, on a connection of
// its own.
func send(t testing.TB, addr, method, uri string, header http.Header, body string) answer {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", method, uri)
	if header["Host"] == nil {
		b.WriteString("Host: 127.0.0.1:18080\r\n")
	}
	for name, values := range header {
		for _, v := range values {
			fmt.Fprintf(&b, "%s: %s\r\n", name, v)
		}
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	return exchangeRaw(t, addr, method, b.String())
}

func exchangeRaw(t testing.TB, addr, method, raw string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	go io.WriteString(conn, raw)
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(got), res.Close}
}

// leaks names the keys and tokens in what can be printed of v.
func leaks(v any, tokens ...string) []string {
	var found []string
	encoded, _ := json.Marshal(v)
	text := append([]byte(fmt.Sprintf("%v %+v %#v ", v, v, v)), encoded...)
	for _, needle := range append(tokens, anthropicKey, openaiKey, geminiKey) {
		if bytes.Contains(text, []byte(needle)) {
			found = append(found, needle)
		}
	}
	return found
}
