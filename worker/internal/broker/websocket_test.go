package broker

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const nonce = "dGhlIHNhbXBsZSBub25jZQ==" // RFC 6455's own

// wsServer makes an upstream accept WebSockets; then has the connection.
func wsServer(up *upstream, answer http.Header, then func(net.Conn, *bufio.Reader)) {
	up.then = func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + websocketGUID))
		h := http.Header{"Sec-Websocket-Accept": {base64.StdEncoding.EncodeToString(sum[:])}, "Upgrade": {"websocket"}, "Connection": {"Upgrade"}}
		for name, values := range answer {
			h[name] = values
		}
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n")
		h.Write(conn)
		io.WriteString(conn, "\r\n")
		then(conn, rw.Reader)
	}
}

// wsDial makes the handshake. The connection's reader is past the answer.
func wsDial(t testing.TB, addr, uri string, more http.Header) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	h := http.Header{"Upgrade": {"websocket"}, "Connection": {"keep-alive, Upgrade"}, "Sec-WebSocket-Key": {nonce}, "Sec-WebSocket-Version": {"13"}}
	for name, values := range more {
		h[name] = values
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n", uri)
	h.Write(conn)
	io.WriteString(conn, "\r\n")
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, &http.Request{Method: "GET"})
	if err != nil {
		t.Fatal(err)
	}
	return conn, r, res
}

// wsFrame is one as a server sends it.
func wsFrame(opcode byte, fin bool, payload []byte) []byte {
	if fin {
		opcode |= finBit
	}
	switch n := len(payload); {
	case n <= 125:
		return append([]byte{opcode, byte(n)}, payload...)
	case n < 1<<16:
		return append(binary.BigEndian.AppendUint16([]byte{opcode, 126}, uint16(n)), payload...)
	default:
		return append(binary.BigEndian.AppendUint64([]byte{opcode, 127}, uint64(n)), payload...)
	}
}

// Both vendors that have WebSockets, over TLS: the credential is swapped in the
// handshake, compression is the two ends' own affair, and bytes go both ways at
// the same time and unchanged.
func TestAWebSocketIsProxied(t *testing.T) {
	up, s := newVendor(t), newStage(t, nil)
	s.vendors(up)
	fromBox := make(chan []byte, 1)
	pushed := bytes.Repeat([]byte("\x81\x05hello\xff\x00"), 50_000)
	wsServer(up, http.Header{
		"Sec-Websocket-Extensions": {"permessage-deflate; server_no_context_takeover"}, "Sec-Websocket-Protocol": {"chat"},
		"Set-Cookie": {"a=b"}, "Server-Timing": {"x"}, "X-Debug": {"key=" + openaiKey}, "Openai-Model": {"m"},
	}, func(conn net.Conn, r *bufio.Reader) {
		got := make(chan []byte)
		go func() {
			b := make([]byte, len(pushed))
			io.ReadFull(r, b)
			got <- b
		}()
		conn.Write(pushed)
		fromBox <- <-got
		conn.Write(wsFrame(8, true, []byte("\x0f\xa1bye"))) // 4001
		io.Copy(io.Discard, r)
	})
	addr := s.serve("b1")
	token := s.issueVendor("b1", Limits{})
	for _, c := range []struct{ path, wantURI, header, want string }{
		{"/openai/v1/responses", "/v1/responses", "Authorization", "Bearer " + openaiKey},
		{"/openai/responses?a=1&api_key=" + token, "/v1/responses?a=1", "Authorization", "Bearer " + openaiKey},
		{
			"/gemini/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent?key=" + token,
			"/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent", "X-Goog-Api-Key", geminiKey,
		},
	} {
		conn, r, res := wsDial(t, addr, "/b/"+token+c.path, http.Header{
			"Authorization": {"Bearer " + token}, "X-Goog-Api-Key": {token}, "Openai-Beta": {"responses_websockets=2026-02-06"},
			"Sec-Websocket-Extensions": {"permessage-deflate; client_max_window_bits"}, "Origin": {"http://box"},
			"Sec-Websocket-Protocol": {"chat, openai-insecure-api-key." + token},
		})
		req := up.last(t)
		if res.StatusCode != 101 || req.URI != c.wantURI || req.Header.Get(c.header) != c.want || strings.Contains(fmt.Sprint(req), tokenPrefix) {
			t.Fatalf("%s: %d; the upstream saw %+v", c.path, res.StatusCode, req)
		}
		if len(leaks(req.Header)) != 1 || req.Header.Get("Sec-Websocket-Extensions") != "permessage-deflate; client_max_window_bits" ||
			req.Header.Get("Sec-Websocket-Protocol") != "chat" || req.Header.Get("Origin") != "" || req.Header.Get("Openai-Beta") == "" {
			t.Errorf("the upstream saw %v", req.Header)
		}
		h := res.Header
		if h.Get("Sec-Websocket-Extensions") != "permessage-deflate; server_no_context_takeover" || h.Get("Sec-Websocket-Protocol") != "chat" ||
			h.Get("Set-Cookie")+h.Get("Server-Timing") != "" || h.Get("Openai-Model") != "m" || h.Get("Upgrade") != "websocket" ||
			(c.header == "Authorization") == strings.Contains(fmt.Sprint(h), openaiKey) {
			t.Errorf("the box saw %v", h)
		}
		mine := bytes.Repeat([]byte("\x82\x85\x01\x02\x03\x04abcde\x00"), len(pushed)/12+1)[:len(pushed)]
		go conn.Write(mine)
		got := make([]byte, len(pushed))
		if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, pushed) {
			t.Errorf("%s: what the upstream sent changed (%v)", c.path, err)
		}
		if !bytes.Equal(<-fromBox, mine) {
			t.Errorf("%s: what the box sent changed", c.path)
		}
		bye := make([]byte, 7)
		if _, err := io.ReadFull(r, bye); err != nil || string(bye) != "\x88\x05\x0f\xa1bye" {
			t.Errorf("%s: the close frame is %q, %v", c.path, bye, err)
		}
		conn.Close()
		e := s.await(Requesting, func(e Event) bool { return e.Status == 101 && e.Up == int64(len(mine)) })
		if e.Route == "" || e.Code != "" {
			t.Errorf("event %+v", e)
		}
		s.mu.Lock()
		s.events = nil
		s.mu.Unlock()
	}
}

// What is no handshake, has no row, or does not come about.
func TestWebSocketsThatAreRefused(t *testing.T) {
	up, s := newVendor(t), newStage(t, nil)
	s.vendors(up)
	addr := s.serve("b1")
	token := s.issueVendor("b1", Limits{})
	limited := s.issueVendor("b1", Limits{PerMinute: 5})
	bidi := "/gemini/ws/google.ai.generativelanguage.v1.GenerativeService.BidiGenerateContent"
	refuse := func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(403) }
	for name, c := range map[string]struct {
		token, path string
		header      http.Header
		then        http.HandlerFunc
		want        int
		reaches     bool
		code        string
	}{
		"unknown token":      {newTokenText(), "/openai/v1/responses", nil, nil, 426, false, "upgrade_required"},
		"another path":       {token, "/openai/v1/files", nil, nil, 426, false, "upgrade_required"},
		"another service":    {token, "/gemini/ws/google.ai.generativelanguage.v1.Other.Method", nil, nil, 426, false, "upgrade_required"},
		"dots":               {token, "/openai/v1/../v1/responses", nil, nil, 400, false, "bad_request"},
		"h2c":                {token, "/openai/v1/responses", http.Header{"Upgrade": {"h2c"}}, nil, 426, false, "upgrade_required"},
		"no Connection":      {token, "/openai/v1/responses", http.Header{"Connection": {"close"}}, nil, 426, false, "upgrade_required"},
		"old version":        {token, "/openai/v1/responses", http.Header{"Sec-WebSocket-Version": {"8"}}, nil, 400, false, "bad_request"},
		"short key":          {token, "/openai/v1/responses", http.Header{"Sec-WebSocket-Key": {"YQ=="}}, nil, 400, false, "bad_request"},
		"counts requests":    {limited, "/openai/v1/responses", nil, nil, 426, false, "upgrade_required"},
		"no WebSocket there": {token, "/openai/v1/responses", nil, refuse, 426, true, "upstream_403"},
		"its own answer":     {token, bidi, nil, refuse, 403, true, ""},
		"redirect": {token, bidi, nil, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://x.example", http.StatusTemporaryRedirect)
		}, 502, true, "upstream_redirect"},
		"another's handshake": {token, bidi, nil, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Upgrade", "websocket")
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Sec-Websocket-Accept", "AAAA")
			w.WriteHeader(101)
		}, 502, true, "upstream_protocol"},
	} {
		up.mu.Lock()
		up.then = c.then
		up.mu.Unlock()
		before := len(up.requests())
		_, _, res := wsDial(t, addr, "/b/"+c.token+c.path, c.header)
		if res.StatusCode != c.want || c.want == 426 && !res.Close {
			t.Errorf("%s: %d, want %d", name, res.StatusCode, c.want)
		}
		if reached := len(up.requests()) > before; reached != c.reaches {
			t.Errorf("%s: reached the upstream: %v", name, reached)
		}
		s.await(Requesting, func(e Event) bool { return e.Code == c.code && e.Status == c.want })
		s.mu.Lock()
		s.events = nil
		s.mu.Unlock()
	}
	up.Close() // and nobody is there
	if _, _, res := wsDial(t, addr, "/b/"+token+"/openai/v1/responses", nil); res.StatusCode != 426 {
		t.Errorf("no upstream: %d", res.StatusCode)
	}
	if _, _, res := wsDial(t, addr, "/b/"+token+bidi, nil); res.StatusCode != 502 {
		t.Errorf("no upstream, Gemini: %d", res.StatusCode)
	}
}

// However it ends on one side, the other one hears of it at once; and with the
// token both end.
func TestAWebSocketEndsWithEachSideAndWithItsToken(t *testing.T) {
	for _, how := range []string{"box", "upstream", "upstream reset", "revoked", "stolen"} {
		t.Run(how, func(t *testing.T) {
			up, s := newUpstream(t), newStage(t, nil)
			var gone atomic.Bool
			ended, end := make(chan bool), make(chan bool)
			wsServer(up, nil, func(conn net.Conn, r *bufio.Reader) {
				conn.Write(wsFrame(1, true, []byte("up")))
				go func() { // also when it ends the connection itself
					_, err := io.Copy(io.Discard, r)
					gone.Store(err == nil)
					close(ended)
				}()
				select {
				case <-end:
					if how == "upstream reset" {
						conn.(*net.TCPConn).SetLinger(0)
					}
				case <-ended:
				}
				conn.Close()
			})
			a1, a2 := s.serve("b1"), s.serve("b2")
			token, _ := s.issue("b1", up.URL)
			conn, r, _ := wsDial(t, a1, "/b/"+token+"/openai/v1/responses", nil)
			if first := make([]byte, 4); true {
				if _, err := io.ReadFull(r, first); err != nil || string(first[2:]) != "up" {
					t.Fatalf("%q, %v", first, err)
				}
			}
			if n := s.connections("b1"); n != 1 {
				t.Fatalf("control: %d connections are counted while it is open", n)
			}
			begin := time.Now()
			switch how {
			case "box":
				conn.Close()
			case "revoked":
				s.Revoke("b1")
			case "stolen":
				send(t, a2, "POST", "/b/"+token+"/openai/v1/responses", nil, "{}")
			default:
				close(end)
			}
			<-ended
			if how != "box" {
				_, err := r.ReadByte()
				reset := errors.Is(err, syscall.ECONNRESET)
				if err == nil || how == "upstream" && reset || how == "upstream reset" && !reset {
					t.Errorf("the box read %v", err)
				}
			}
			want := map[string]string{"box": "", "upstream": "", "upstream reset": "upstream_cut"}[how]
			if how == "revoked" || how == "stolen" {
				want = "token_revoked"
			}
			s.await(Requesting, func(e Event) bool { return e.Status == 101 && e.Code == want })
			t.Logf("both sides ended after %v", time.Since(begin))
			if n := s.connections("b1"); n != 0 {
				t.Errorf("%d connections are still counted", n)
			}
		})
	}
}

// A box's connections count, whatever became of them.
func TestOpenWebSocketsAreCounted(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	wsServer(up, nil, func(conn net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) })
	addr := s.serve("b1")
	issued, err := s.Issue(Turn{Box: "b1", Engine: "none", Keys: testKeys(up.URL), Limits: Limits{Concurrent: 2}})
	if err != nil {
		t.Fatal(err)
	}
	uri := "/b/" + issued.Env["OPENAI_API_KEY"] + "/openai/v1/responses"
	wsDial(t, addr, uri, nil)
	second, _, _ := wsDial(t, addr, uri, nil)
	if _, _, res := wsDial(t, addr, uri, nil); res.StatusCode != 429 {
		t.Errorf("the third: %d", res.StatusCode)
	}
	second.Close()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, _, res := wsDial(t, addr, uri, nil); res.StatusCode == 101 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("an ended one still counts")
		}
	}
}

// An upstream that may echo gets no offer of compression, and its frames are
// searched.
func TestAnEchoInAWebSocketIsRedacted(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	wsServer(up, nil, func(conn net.Conn, r *bufio.Reader) {
		conn.Write(wsFrame(1, true, []byte("key="+openaiKey)))
		conn.Write(wsFrame(1, false, []byte("half "+openaiKey[:9])))
		conn.Write(wsFrame(9, true, []byte("ping")))
		conn.Write(wsFrame(0, true, []byte(openaiKey[9:]+" end")))
		conn.Write(wsFrame(2, true, bytes.Repeat([]byte("\x00plain"), 40_000)))
		conn.Write(wsFrame(8, true, []byte("\x03\xe8")))
	})
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	_, r, res := wsDial(t, addr, "/b/"+token+"/openai/v1/responses", http.Header{"Sec-Websocket-Extensions": {"permessage-deflate"}})
	if req := up.last(t); res.StatusCode != 101 || req.Header.Get("Sec-Websocket-Extensions") != "" {
		t.Errorf("%d; the upstream saw %v", res.StatusCode, req.Header)
	}
	got, err := io.ReadAll(r)
	var want []byte
	hidden := strings.Repeat(redacted, 5)[:len(openaiKey)]
	want = append(want, wsFrame(1, true, []byte("key="+hidden))...)
	want = append(want, wsFrame(1, false, []byte("half "))...)
	want = append(want, wsFrame(9, true, []byte("ping"))...)
	want = append(want, wsFrame(0, true, []byte(hidden+" end"))...)
	want = append(want, wsFrame(2, true, bytes.Repeat([]byte("\x00plain"), 40_000))...)
	want = append(want, wsFrame(8, true, []byte("\x03\xe8"))...)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v\n%.300q\nwant\n%.300q", err, got, want)
	}
	s.await(Requesting, func(e Event) bool { return e.Redacted == 2 })
	// And one that agrees on compression that nobody offered is not let in.
	wsServer(up, http.Header{"Sec-Websocket-Extensions": {"permessage-deflate"}}, func(net.Conn, *bufio.Reader) {})
	if _, _, res := wsDial(t, addr, "/b/"+token+"/openai/v1/responses", nil); res.StatusCode != 426 {
		t.Errorf("compressed all the same: %d", res.StatusCode)
	}
}

func TestBytesOfAWebSocketAreLimited(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	wsServer(up, nil, func(conn net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) })
	addr := s.serve("b1")
	issued, err := s.Issue(Turn{Box: "b1", Engine: "none", Keys: testKeys(up.URL), Limits: Limits{Bytes: 100_000}})
	if err != nil {
		t.Fatal(err)
	}
	uri := "/b/" + issued.Env["OPENAI_API_KEY"] + "/openai/v1/responses"
	conn, r, _ := wsDial(t, addr, uri, nil)
	conn.Write(make([]byte, 1000))
	go conn.Write(make([]byte, 200_000))
	if _, err := r.ReadByte(); err == nil {
		t.Error("the connection still stands")
	}
	if e := s.await(Requesting, func(e Event) bool { return e.Code == "limit_bytes" }); e.Up > 100_000 {
		t.Errorf("%d bytes went out", e.Up)
	}
	if _, _, res := wsDial(t, addr, uri, nil); res.StatusCode != 429 || res.Header.Get("X-Should-Retry") != "false" {
		t.Errorf("afterwards: %d", res.StatusCode)
	}
}

// Frames in any pieces: the messages that come out are those that went in,
// less the key, with the control frames between them in the same places.
func FuzzFrames(f *testing.F) {
	f.Add(append(wsFrame(1, false, []byte("a"+openaiKey[:7])), append(wsFrame(10, true, nil), wsFrame(0, true, []byte(openaiKey[7:]))...)...))
	f.Add(append(wsFrame(2, true, make([]byte, 40_000)), wsFrame(1, false, nil)...))
	f.Add(append(wsFrame(1, true, nil), wsFrame(8, true, []byte(openaiKey))...))
	f.Add([]byte("\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff"))
	r := newRedactor(openaiKey)
	f.Fuzz(func(t *testing.T, data []byte) {
		var found atomic.Int64
		var out bytes.Buffer
		err := (&frames{from: bufio.NewReader(bytes.NewReader(data)), to: &out, redactor: r, found: &found}).pass()
		want, whole := messages(data)
		got, _ := messages(out.Bytes())
		if err == nil && !whole {
			t.Fatalf("%q passed as whole", data)
		}
		if len(got) < len(want) || err == nil && len(got) != len(want) {
			t.Fatalf("%d messages became %d", len(want), len(got))
		}
		for i := range want {
			n := r.replace(want[i].payload)
			if !bytes.Equal(want[i].payload, got[i].payload) || want[i].opcode != got[i].opcode {
				t.Fatalf("message %d: %q became %q (%d hidden)", i, want[i].payload, got[i].payload, n)
			}
		}
		if bytes.Contains(out.Bytes(), []byte(openaiKey)) {
			t.Fatalf("the key came out of %q", data)
		}
	})
}

type message struct {
	opcode  byte
	payload []byte
}

// messages puts frames together in the plainest way.
func messages(data []byte) (all []message, whole bool) {
	r := bufio.NewReader(bytes.NewReader(data))
	var open *message
	for {
		h, err := readHead(r)
		if err != nil {
			return all, err == io.EOF
		}
		if h.length > uint64(len(data)) {
			return all, false
		}
		payload := make([]byte, h.length)
		if _, err := io.ReadFull(r, payload); err != nil {
			return all, false
		}
		switch {
		case h.opcode >= 8:
			all = append(all, message{h.opcode, payload})
			continue
		case (open == nil) == (h.opcode == 0):
			return all, false
		case open == nil:
			open = &message{opcode: h.opcode}
		}
		open.payload = append(open.payload, payload...)
		if h.fin {
			all = append(all, *open)
			open = nil
		}
	}
}
