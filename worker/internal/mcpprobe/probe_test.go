package mcpprobe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/mcpserver"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

const key = "Bearer sk-mcp-canary-0123456789"

func newBroker(t *testing.T) *broker.Broker {
	t.Helper()
	b, err := broker.New(broker.Options{BootKey: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func server(url string) broker.MCPServer {
	return broker.MCPServer{Name: "notes", URL: url, Headers: map[string]secret.Text{"authorization": secret.New(key)}}
}

func run(t *testing.T, b Issuer, url string) Result {
	t.Helper()
	begin := time.Now()
	r := Run(context.Background(), b, server(url))
	if took := time.Since(begin); took > Within+time.Second {
		t.Errorf("it took %v", took)
	}
	if text := fmt.Sprintf("%+v", r); strings.Contains(text, "canary") || strings.Contains(text, "omb_t0_") || strings.Contains(text, "127.0.0.1") {
		t.Errorf("the result holds a key, a token or an address: %s", text)
	}
	return r
}

// A server of each revision is found good, and its tools are listed.
func TestEveryRevisionIsConnected(t *testing.T) {
	b := newBroker(t)
	for _, revision := range mcpserver.Revisions {
		for _, events := range []bool{false, true} {
			m := mcpserver.New(mcpserver.Options{Revision: revision, Target: "/mcp/?tenant=1", Header: "Authorization", Value: key, Events: events, Absolute: events})
			s := httptest.NewServer(m)
			r := run(t, b, s.URL+"/mcp/?tenant=1")
			if !r.OK || r.Protocol != revision || r.Server != "standin "+revision || len(r.Tools) != 1 || r.Tools[0].Name != "echo" || r.Code != "" {
				t.Errorf("%s: %+v", revision, r)
			}
			if n := b.Living(); n != 0 {
				t.Errorf("%s: %d grants are left", revision, n)
			}
			if revision > "2024-11-05" && m.Sessions() != 0 {
				t.Errorf("%s: the session is left open", revision)
			}
			if faults := m.Faults(); len(faults) > 0 {
				t.Errorf("%s: %v", revision, faults)
			}
			s.Close()
		}
	}
}

// Whatever is wrong with a server is told in words, and nothing is left.
func TestFailuresAreTold(t *testing.T) {
	handle := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	gone, _ := net.Listen("tcp", "127.0.0.1:0")
	gone.Close()
	b := newBroker(t)
	good := mcpserver.New(mcpserver.Options{Revision: "2025-06-18", Target: "/mcp", Header: "Authorization", Value: key})
	for what, c := range map[string]struct{ url, code, says string }{
		"another key": {handle(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
		}), "mcp_failed", "refused the key that it was given (HTTP 401)"},
		"nobody there":   {"http://" + gone.Addr().String(), "mcp_failed", "could not be reached"},
		"a page":         {handle(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>") }), "mcp_failed", "no JSON-RPC"},
		"nothing":        {handle(http.NotFound), "mcp_failed", "HTTP 404"},
		"another origin": {handle(http.RedirectHandler("http://127.0.0.2:1/mcp", http.StatusTemporaryRedirect).ServeHTTP), "mcp_failed", "must not go"},
		"evil words": {handle(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"\u001b[2Jbad %s %s"}}`, r.Header.Get("Authorization"), strings.Repeat("x", 1000))
		}), "mcp_failed", "bad"},
		// Only through the broker does this one fail: it compresses, asked or not.
		"our fault": {handle(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") == "identity" {
				w.Header().Set("Content-Encoding", "br")
			}
			good.ServeHTTP(w, r)
		}), "broker_unreachable", "Your bots can't reach this server: it answers this machine"},
	} {
		r := run(t, b, c.url+"/mcp")
		if r.OK || r.Code != c.code || !strings.Contains(r.Message, c.says) || strings.Contains(r.Message, "\x1b") || len(r.Message) > 900 {
			t.Errorf("%s: %+v", what, r)
		}
		if n := b.Living(); n != 0 {
			t.Errorf("%s: %d grants are left", what, n)
		}
	}
}

// broken is a broker that fails in one way.
type broken struct {
	*broker.Broker
	serve func(net.Listener, string) error
	issue func() error
}

func (b broken) Serve(l net.Listener, box string) error {
	if b.serve != nil {
		return b.serve(l, box)
	}
	return b.Broker.Serve(l, box)
}

func (b broken) IssueMCP(turn broker.MCPTurn) (broker.MCPIssued, error) {
	issued, err := b.Broker.IssueMCP(turn)
	if b.issue != nil {
		err = b.issue()
	}
	return issued, err
}

// A broker that does not do its part is named as ours, and never "Connected".
func TestABrokenBrokerIsOurFault(t *testing.T) {
	m := mcpserver.New(mcpserver.Options{Revision: "2025-11-25", Target: "/mcp", Header: "Authorization", Value: key})
	s := httptest.NewServer(m)
	defer s.Close()
	b := newBroker(t)
	for what, is := range map[string]broken{
		"it does not accept":  {Broker: b, serve: func(l net.Listener, _ string) error { l.Close(); return errors.New("no") }},
		"it answers nonsense": {Broker: b, serve: func(l net.Listener, _ string) error { return http.Serve(l, http.NotFoundHandler()) }},
		"it does not answer": {Broker: b, serve: func(l net.Listener, _ string) error {
			for {
				if _, err := l.Accept(); err != nil {
					return err
				}
			}
		}},
		"it gives no grant": {Broker: b, issue: func() error { b.Revoke("x"); return errors.New("no") }},
		"it panics":         {Broker: b, issue: func() error { panic("fault") }},
	} {
		r := run(t, is, s.URL+"/mcp")
		if r.OK || r.Code != "broker_unreachable" || !strings.Contains(r.Message, "The fault is ours") {
			t.Errorf("%s: %+v", what, r)
		}
		if n := b.Living(); n != 0 {
			t.Errorf("%s: %d grants are left", what, n)
		}
	}
	if r := run(t, b, s.URL+"/mcp"); !r.OK {
		t.Errorf("control: %+v", r)
	}
}

// A server that never answers costs nine seconds and nothing else; nor does a
// caller that goes away.
func TestASilentServerIsGivenUp(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer s.Close()
	b := newBroker(t)
	begin := time.Now()
	if r := run(t, b, s.URL); r.OK || r.Code != "mcp_failed" || !strings.Contains(r.Message, "within 9 seconds") || time.Since(begin) < Within-time.Second {
		t.Errorf("%+v after %v", r, time.Since(begin))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	begin = time.Now()
	if r := Run(ctx, b, server(s.URL)); r.OK || time.Since(begin) > 3*time.Second {
		t.Errorf("%+v after %v", r, time.Since(begin))
	}
	if n := b.Living(); n != 0 {
		t.Errorf("%d grants are left", n)
	}
}

// After a thousand tests nothing is left, good ones and bad ones.
func TestTestsLeaveNoGrants(t *testing.T) {
	m := mcpserver.New(mcpserver.Options{Revision: "2025-11-25", Target: "/mcp", Header: "Authorization", Value: key})
	s := httptest.NewServer(m)
	defer s.Close()
	b := newBroker(t)
	if _, err := b.IssueMCP(broker.MCPTurn{Box: "box", Bot: "b", Conversation: "c", Servers: []broker.MCPServer{server(s.URL)}}); err != nil {
		t.Fatal(err)
	}
	before := b.Living()
	for i := range 1000 {
		target := "/mcp"
		if i%4 == 3 {
			target = "/other"
		}
		if r := Run(context.Background(), b, server(s.URL+target)); r.OK != (target == "/mcp") {
			t.Fatalf("test %d: %+v", i, r)
		}
		if n := b.Living(); n != before {
			t.Fatalf("test %d: %d grants, before %d", i, n, before)
		}
	}
	if before != 1 {
		t.Errorf("control: %d grants before", before)
	}
}

func TestTextIsMadeFit(t *testing.T) {
	for in, want := range map[string]string{"a\nb\tc": "a b c", "\x1b[2Jx\u202e": "[2Jx", " x ": "x", "abcdef": "abcd…"} {
		if got := clean(in, 4); got != want && (in == "abcdef" || clean(in, 40) != want) {
			t.Errorf("%q: %q", in, got)
		}
	}
}

// FuzzAnswer: what a server sends is read or refused, never a fault.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`), 1)
	f.Add([]byte(`{"id":null,"error":{"code":1,"message":"x"}}`), 2)
	f.Add([]byte("event: a\ndata: {}\n\n"), 3)
	f.Fuzz(func(t *testing.T, b []byte, id int) {
		result, ours, err := answerTo(b, id)
		if ours && (result == nil) == (err == nil) {
			t.Fatalf("%q: %s %v %v", b, result, ours, err)
		}
		e := newEvents(io.NopCloser(strings.NewReader(string(b))))
		for range len(b) + 1 {
			if _, err := e.next(); err != nil {
				return
			}
		}
		t.Fatal("the stream has more events than bytes")
	})
}
