package broker

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// openStream starts a stream that the upstream never ends by itself.
func openStream(t *testing.T, addr, token string) *http.Response {
	t.Helper()
	res, err := http.Post("http://"+addr+"/b/"+token+"/anthropic/v1/messages", "", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	first := make([]byte, 5)
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "first" {
		t.Fatalf("%q, %v", first, err)
	}
	return res
}

func endless(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "first")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func TestRevokeCutsTheBoxAndOnlyTheBox(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	up.then = endless
	a1, a2 := s.serve("b1"), s.serve("b2")
	t1, _ := s.issue("b1", up.URL)
	s.issue("b1", up.URL)
	t2, _ := s.issue("b2", up.URL)
	idle, err := net.Dial("tcp", a1)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	cut, other := openStream(t, a1, t1), openStream(t, a2, t2)
	if n := s.Revoke("b1"); n != 2 {
		t.Errorf("%d tokens ended, want 2", n)
	}
	if rest, err := io.ReadAll(cut.Body); err == nil {
		t.Errorf("the stream ended well with %q", rest)
	}
	if stands(idle) {
		t.Error("the idle connection still stands")
	}
	if n := s.Revoke("b1"); n != 0 {
		t.Errorf("a second call ended %d tokens", n)
	}
	if got := send(t, a1, "POST", "/b/"+t1+"/openai/responses", nil, "{}"); got.status != 400 || !strings.Contains(got.body, "token_revoked") {
		t.Errorf("after Revoke: %d %s", got.status, got.body)
	}
	up.mu.Lock()
	up.then = nil
	up.mu.Unlock()
	if got := send(t, a2, "POST", "/b/"+t2+"/openai/responses", nil, "{}"); got.status != 200 {
		t.Errorf("the other box: %d", got.status)
	}
	s.Revoke("b2")
	if rest, err := io.ReadAll(other.Body); err == nil {
		t.Errorf("the other stream ended well with %q", rest)
	}
	if s.kinds()[Revoking] != 3 {
		t.Errorf("events %v", s.kinds())
	}
}

// stands tells whether a connection on which nothing comes is still open.
func stands(c net.Conn) bool {
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err := c.Read(make([]byte, 1))
	return err == nil || errors.Is(err, os.ErrDeadlineExceeded)
}

func TestAStolenTokenEndsForBoth(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	up.then = endless
	a1, a2 := s.serve("b1"), s.serve("b2")
	t1, _ := s.issue("b1", up.URL)
	t2, _ := s.issue("b2", up.URL)
	stream := openStream(t, a1, t1)
	got := send(t, a2, "POST", "/b/"+t1+"/anthropic/v1/messages", nil, "{}")
	if got.status != 403 || got.header.Get("X-Should-Retry") != "false" {
		t.Errorf("the thief: %d", got.status)
	}
	if rest, err := io.ReadAll(stream.Body); err == nil {
		t.Errorf("the owner's stream ended well with %q", rest)
	}
	if got := send(t, a1, "POST", "/b/"+t1+"/anthropic/v1/messages", nil, "{}"); got.status != 401 {
		t.Errorf("the owner: %d", got.status)
	}
	// It stays stolen, and an upgrade does not hide it.
	if got := send(t, a2, "GET", "/b/"+t1+"/openai/v1/responses", http.Header{"Upgrade": {"websocket"}}, ""); got.status != 426 {
		t.Errorf("upgrade: %d", got.status)
	}
	e := s.await(Stealing, func(Event) bool { return true })
	if e.Box != "b2" || e.Owner != "b1" || s.kinds()[Stealing] != 2 || s.kinds()[Revoking] != 1 {
		t.Errorf("event %+v, kinds %v", e, s.kinds())
	}
	up.mu.Lock()
	up.then = nil
	up.mu.Unlock()
	if got := send(t, a2, "POST", "/b/"+t2+"/anthropic/v1/messages", nil, "{}"); got.status != 200 {
		t.Errorf("the thief's own token: %d", got.status)
	}
	if n := len(up.requests()); n != 2 {
		t.Errorf("the upstream saw %d requests, want 2", n)
	}
}

func TestATokenLivesADay(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 200}, {24*time.Hour - time.Second, 200}, {time.Second, 401}, {time.Hour, 401}} {
		s.advance(c.after)
		if got := send(t, addr, "POST", "/b/"+token+"/anthropic/v1/messages", nil, "{}"); got.status != c.want {
			t.Errorf("after another %v: %d, want %d", c.after, got.status, c.want)
		}
	}
}

func TestOneBoxCannotTakeAllDescriptors(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	var conns []net.Conn
	for range connsPerBox {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	over, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	if stands(over) {
		t.Error("one connection too many stands")
	}
	io.WriteString(conns[0], "POST /b/"+token+"/openai/responses HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	if got, _ := io.ReadAll(conns[0]); !strings.HasPrefix(string(got), "HTTP/1.1 200") {
		t.Errorf("control: %.40q", got)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	up.then = endless
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	stream := openStream(t, addr, token)
	s.Close()
	if rest, err := io.ReadAll(stream.Body); err == nil {
		t.Errorf("the stream ended well with %q", rest)
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Error("the listener still stands")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(l, "b2"); err == nil {
		t.Error("served after Close")
	}
}

// Many boxes at once, issued, used, revoked and stolen from; and after all of
// it no event holds a key or a token.
func TestManyBoxesAtOnce(t *testing.T) {
	up, s := newUpstream(t), newStage(t, openStore(t, t.TempDir()))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var tokens []string
	shared := s.serve("shared")
	for i := range 8 {
		wg.Go(func() {
			box := string(rune('a' + i))
			addr := s.serve(box)
			for range 5 {
				token, _ := s.issue(box, up.URL)
				mu.Lock()
				tokens = append(tokens, token)
				mu.Unlock()
				if got := send(t, addr, "POST", "/b/"+token+"/gemini/v1beta/models/m:x?key="+token, nil, "{}"); got.status != 200 {
					t.Errorf("box %s: %d", box, got.status)
				}
				if i%2 == 0 {
					send(t, shared, "POST", "/b/"+token+"/gemini/v1beta/models/"+token, nil, "{}")
				}
				s.Revoke(box)
				if got := send(t, addr, "POST", "/b/"+token+"/gemini/v1beta/models/m:x", nil, "{}"); got.status != 401 {
					t.Errorf("box %s after Revoke: %d", box, got.status)
				}
			}
		})
	}
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if bad := leaks(s.events, tokens...); len(bad) > 0 {
		t.Errorf("events hold %q", bad)
	}
	if len(leaks([]string{tokens[0]}, tokens...)) == 0 {
		t.Error("control: the scan finds nothing")
	}
	if len(s.events) < 120 || len(tokens) != 40 {
		t.Errorf("%d events, %d tokens", len(s.events), len(tokens))
	}
}
