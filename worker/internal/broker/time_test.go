package broker

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipeListener accepts connections that exist in memory only: time in a
// synctest bubble stands still while a real socket is waited for.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// bubble runs a broker, its upstream and a client in a synctest bubble. post
// opens a stream through the broker.
func bubble(t *testing.T, then http.HandlerFunc, do func(b *Broker, post func() *http.Response)) {
	synctest.Test(t, func(t *testing.T) {
		outside, inside := newPipeListener(), newPipeListener()
		upstream := &http.Server{Handler: then}
		transport := newTransport()
		transport.DialContext = outside.dial
		b, err := New(Options{BootKey: [32]byte{1}, Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		var served sync.WaitGroup
		served.Go(func() { upstream.Serve(outside) })
		served.Go(func() { b.Serve(inside, "b1") })
		issued, err := b.Issue(Turn{Box: "b1", Engine: "none", Keys: testKeys("http://up.example")})
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Transport{DialContext: inside.dial}
		do(b, func() *http.Response {
			req, _ := http.NewRequest("POST", "http://broker/b/"+issued.Env["OPENAI_API_KEY"]+"/openai/v1/responses", strings.NewReader("{}"))
			res, err := client.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			return res
		})
		client.CloseIdleConnections()
		b.Close()
		upstream.Close()
		transport.CloseIdleConnections()
		served.Wait()
		// What is told apart from an unknown token is forgotten in the end.
		time.Sleep(2 * deadMemory)
		synctest.Wait()
		if len(b.tokens) != 0 || len(b.known) != 0 {
			t.Errorf("%d tokens are still remembered", len(b.tokens))
		}
	})
}

// silence is how long the streams of TestRealSilence are quiet: 6m is what
// clients and proxies are known to give up in.
var silence = flag.Duration("silence", 2*time.Second, "of real streams that go quiet")

// The same with the machine's clock and connections, which cannot be hurried,
// and for each way to an upstream. It says how long it was quiet.
func TestRealSilence(t *testing.T) {
	quiet := func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		time.Sleep(*silence)
		io.WriteString(w, "data: at last\n\n")
	}
	plain, plainStage := newUpstream(t), newStage(t, nil)
	vendor, vendorStage := newVendor(t), newStage(t, nil)
	plain.then, vendor.then = quiet, quiet
	vendorStage.vendors(vendor)
	plainToken, _ := plainStage.issue("b1", plain.URL)
	var all sync.WaitGroup
	for name, url := range map[string]string{
		"plain": "http://" + plainStage.serve("b1") + "/b/" + plainToken,
		"TLS":   "http://" + vendorStage.serve("b1") + "/b/" + vendorStage.issueVendor("b1", Limits{}),
	} {
		all.Go(func() {
			begin := time.Now()
			res, err := http.Post(url+"/openai/v1/responses", "application/json", strings.NewReader("{}"))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			got, err := io.ReadAll(res.Body)
			if err != nil || string(got) != "data: at last\n\n" || time.Since(begin) < *silence {
				t.Errorf("%s, after %v: %q, %v", name, time.Since(begin), got, err)
			}
			t.Logf("%s: quiet for %v, then %q", name, time.Since(begin), got)
		})
	}
	all.Wait()
}

// A model may think for longer than any idle limit that proxies have. The clock
// is synctest's, so that hours pass at once.
func TestSilenceSurvives(t *testing.T) {
	for _, silence := range []time.Duration{time.Minute, 6 * time.Minute, 20 * time.Hour} {
		bubble(t, func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			time.Sleep(silence)
			io.WriteString(w, "data: at last\n\n")
		}, func(_ *Broker, post func() *http.Response) {
			begin := time.Now()
			res := post()
			got, err := io.ReadAll(res.Body)
			if err != nil || string(got) != "data: at last\n\n" || time.Since(begin) != silence {
				t.Errorf("after %v: %q, %v", time.Since(begin), got, err)
			}
		})
	}
}

// 24 hours are the end of open streams, too.
func TestAnOpenStreamEndsWithItsToken(t *testing.T) {
	bubble(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		for {
			select {
			case <-time.After(time.Minute):
				io.WriteString(w, ".")
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}, func(b *Broker, post func() *http.Response) {
		begin := time.Now()
		res := post()
		got, err := io.ReadAll(res.Body)
		if err == nil || errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != MaxTTL {
			t.Errorf("the stream lasted %v and ended with %v", time.Since(begin), err)
		}
		if n := len(got); n < 24*60-1 || n > 24*60 {
			t.Errorf("%d events came", n)
		}
		again := post()
		if body, _ := io.ReadAll(again.Body); again.StatusCode != 400 || !strings.Contains(string(body), "token_revoked") {
			t.Errorf("afterwards: %d %s", again.StatusCode, body)
		}
	})
}

// A handshake that nobody answers is given up after 15 seconds.
func TestTheHandshakeHasABudget(t *testing.T) {
	bubble(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(b *Broker, _ func() *http.Response) {
		inside := newPipeListener()
		go b.Serve(inside, "b1")
		defer inside.Close()
		issued, err := b.Issue(Turn{Box: "b1", Engine: "none", Keys: testKeys("http://up.example")})
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]int{
			"/openai/v1/responses": 426,
			"/gemini/ws/google.ai.generativelanguage.v1.GenerativeService.BidiGenerateContent": 504,
		} {
			conn, _ := inside.dial(t.Context(), "", "")
			begin := time.Now()
			fmt.Fprintf(conn, "GET /b/%s%s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n",
				issued.Env["OPENAI_API_KEY"], path, nonce)
			res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: "GET"})
			if err != nil || res.StatusCode != want || time.Since(begin) != connectBudget {
				t.Errorf("%s: %v, %v after %v", path, res, err, time.Since(begin))
			}
			conn.Close()
		}
	})
}

// A WebSocket on which nobody says anything stands until its token ends.
func TestASilentWebSocketStands(t *testing.T) {
	bubble(t, func(w http.ResponseWriter, r *http.Request) {
		sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + websocketGUID))
		conn, _, _ := w.(http.Hijacker).Hijack()
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
			base64.StdEncoding.EncodeToString(sum[:]))
		for range 100 {
			time.Sleep(time.Hour)
			if _, err := conn.Write(wsFrame(1, true, []byte("hour"))); err != nil {
				return
			}
		}
	}, func(b *Broker, _ func() *http.Response) {
		inside := newPipeListener()
		go b.Serve(inside, "b1")
		defer inside.Close()
		issued, err := b.Issue(Turn{Box: "b1", Engine: "none", Keys: testKeys("http://up.example")})
		if err != nil {
			t.Fatal(err)
		}
		conn, _ := inside.dial(t.Context(), "", "")
		defer conn.Close()
		begin := time.Now()
		fmt.Fprintf(conn, "GET /b/%s/openai/v1/responses HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n", issued.Env["OPENAI_API_KEY"], nonce)
		r := bufio.NewReader(conn)
		if res, err := http.ReadResponse(r, &http.Request{Method: "GET"}); err != nil || res.StatusCode != 101 {
			t.Fatal(res, err)
		}
		frames, err := io.ReadAll(r)
		if n := strings.Count(string(frames), "hour"); n < 23 || n > 24 || time.Since(begin) != MaxTTL {
			t.Errorf("%d frames in %v, then %v", n, time.Since(begin), err)
		}
	})
}

// Ten events, on a real connection: each is there before the next is sent, and
// at once. Compressed ones come as fast.
func TestEventsComeAsTheyAreSent(t *testing.T) {
	const atOnce = 100 * time.Millisecond
	for _, encoding := range []string{"", "gzip"} {
		up, s := newUpstream(t), newStage(t, nil)
		addr := s.serve("b1")
		token, _ := s.issue("b1", up.URL)
		sent, came := make(chan time.Time, 10), make(chan bool)
		up.then = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			if encoding != "" {
				w.Header().Set("Content-Encoding", encoding)
			}
			z := encoders[encoding](w)
			for i := range 10 {
				sent <- time.Now()
				fmt.Fprintf(z, "data: %d\n\n", i)
				if f, ok := z.(interface{ Flush() error }); ok {
					f.Flush()
				}
				w.(http.Flusher).Flush()
				select {
				case <-came:
				case <-time.After(10 * time.Second):
					t.Errorf("%q: event %d does not come before the next one is sent", encoding, i)
					panic(http.ErrAbortHandler)
				}
			}
			z.Close()
		}
		res, err := http.Post("http://"+addr+"/b/"+token+"/anthropic/v1/messages", "", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		var took []time.Duration
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			if lines.Text() == fmt.Sprintf("data: %d", len(took)) {
				took = append(took, time.Since(<-sent))
				came <- true
			}
		}
		res.Body.Close()
		if len(took) != 10 {
			t.Fatalf("%q: %d events came", encoding, len(took))
		}
		// A busy machine holds one or another up; who waits for more holds up each.
		slices.Sort(took)
		if half := took[len(took)/2]; half > atOnce {
			t.Errorf("%q: half of the events took %v or longer", encoding, half)
		}
		t.Logf("%q: the slowest took %v", encoding, took[len(took)-1])
	}
}
