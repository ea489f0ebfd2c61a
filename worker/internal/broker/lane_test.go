package broker

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

const laneHead = "POST /b/omb_t0_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/openai/v1/responses?a=b HTTP/1.1\r\n"

// What the lane serves, and that net/http gets everything else.
func TestLaneForm(t *testing.T) {
	const rest = "Host: 127.0.0.1:18080\r\nContent-Length: 2\r\n\r\n{}"
	for _, ours := range []string{
		laneHead + rest,
		laneHead + "User-Agent: node\r\nConnection: Keep-Alive\r\nx_api_key: a b\tc\r\n" + rest,
		strings.Replace(laneHead, "openai/v1/responses", "gemini/v1beta/models/m:generateContent", 1) + rest,
		laneHead + "host: x\r\ncontent-length: 131072\r\n\r\n",
		laneHead + rest + laneHead,
	} {
		if !laneForm([]byte(ours)) {
			t.Errorf("control: not the lane's: %q", ours)
		}
	}
	for _, other := range []string{
		"", "POST", laneHead, strings.TrimSuffix(laneHead+rest, "\r\n\r\n{}"),
		strings.Replace(laneHead, "POST", "GET", 1) + rest,
		strings.Replace(laneHead, "POST", "post", 1) + rest,
		strings.Replace(laneHead, "HTTP/1.1", "HTTP/1.0", 1) + rest,
		strings.Replace(laneHead, "HTTP/1.1", "HTTP/2.0", 1) + rest,
		strings.Replace(laneHead, " /b", "  /b", 1) + rest,
		strings.Replace(laneHead, " /b", " http://127.0.0.1:18080/b", 1) + rest,
		strings.Replace(laneHead, "/openai", "/mcp-x", 1) + rest,
		strings.Replace(laneHead, "/openai", "/near", 1) + rest,
		strings.Replace(laneHead, "omb_t0_A", "omb_t0_", 1) + rest,
		strings.Replace(laneHead, "/v1/", "/%zz/", 1) + rest,
		strings.Replace(laneHead, "/v1/", "/../", 1) + rest,
		strings.Replace(laneHead, "a=b", "a=\tb", 1) + rest,
		strings.Replace(laneHead, "\r\n", "\n", 1) + rest,
		strings.Replace(laneHead, "\r\n", "\r\n ", 1) + rest,
		laneHead + "A: b\r\n c\r\n" + rest, laneHead + "A: b\nC: d\r\n" + rest, laneHead + "A: b\rC: d\r\n" + rest,
		laneHead + "A: \x00\r\n" + rest, laneHead + "A: é\r\n" + rest, laneHead + "A : b\r\n" + rest, laneHead + ": b\r\n" + rest, laneHead + "A\r\n" + rest,
		laneHead + "Host: y\r\n" + rest, laneHead + "Content-Length: 2\r\n" + rest, laneHead + "Transfer-Encoding: chunked\r\n" + rest,
		laneHead + "Expect: 100-continue\r\n" + rest, laneHead + "Upgrade: websocket\r\n" + rest, laneHead + "Connection: close\r\n" + rest,
		laneHead + "Connection: x-api-key\r\n" + rest, laneHead + "Trailer: A\r\n" + rest, laneHead + "TE: trailers\r\n" + rest,
		laneHead + "Content-Length: 2\r\n\r\n{}", laneHead + "Host: x\r\n\r\n", laneHead + "Host:\r\nContent-Length: 2\r\n\r\n{}",
		laneHead + "Host: x, y\r\nContent-Length: 2\r\n\r\n{}", laneHead + "Host: x\r\nContent-Length: 2, 2\r\n\r\n{}",
		laneHead + "Host: x\r\nContent-Length: 0\r\n\r\n", laneHead + "Host: x\r\nContent-Length: -2\r\n\r\n", laneHead + "Host: x\r\nContent-Length: +2\r\n\r\n{}",
		laneHead + "Host: x\r\nContent-Length: 0x2\r\n\r\n{}", laneHead + "Host: x\r\nContent-Length: 131073\r\n\r\n",
		laneHead + strings.Repeat("A: b\r\n", headerFields) + rest,
	} {
		if laneForm([]byte(other)) {
			t.Errorf("the lane's: %q", other)
		}
	}
}

// Whatever the lane takes, net/http reads the same and finds nothing wrong.
func FuzzLaneForm(f *testing.F) {
	f.Add([]byte(laneHead + "Host: x\r\nContent-Length: 2\r\n\r\n{}"))
	f.Add([]byte(laneHead + "Host: x\r\nConnection: keep-alive\r\nA_b: c\r\nContent-Length: 002\r\n\r\n{}"))
	f.Fuzz(func(t *testing.T, read []byte) {
		if !laneForm(read) {
			return
		}
		br := bufio.NewReaderSize(bytes.NewReader(read), 64<<10)
		r, err := http.ReadRequest(br)
		if err != nil {
			t.Fatalf("%q: %v", read, err)
		}
		head := bytes.Index(read, []byte("\r\n\r\n")) + 4
		if rest, _ := io.ReadAll(br); len(rest) != len(read)-head {
			t.Errorf("%q: net/http read another head", read)
		}
		if r.Method != "POST" || r.Proto != "HTTP/1.1" || r.Close || len(r.TransferEncoding) != 0 || len(r.Trailer) != 0 ||
			r.ContentLength < 1 || r.ContentLength > heldBody || r.Host == "" || !strings.HasPrefix(r.RequestURI, "/b/"+tokenPrefix) {
			t.Errorf("%q: %+v", read, r)
		}
		if code := checkForm(r); code == "bad_request" {
			t.Errorf("%q: %s", read, code)
		}
	})
}

// onLane serves h on a lane and beside it, and tells which of them answered.
func onLane(t *testing.T, h http.HandlerFunc) (addr string, ways func() string) {
	t.Helper()
	s := newStage(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan string, 100)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		way := "net/http"
		if _, ok := w.(*laneAnswer); ok {
			way = "lane"
		}
		answered <- way
		h(w, r)
	})
	server := &http.Server{Handler: handler}
	n := newLane(s.Broker, l, "b1", handler)
	done := make(chan error, 1)
	go func() { done <- server.Serve(n) }()
	t.Cleanup(func() { server.Close(); <-done })
	return l.Addr().String(), func() string {
		all := ""
		for len(answered) > 0 {
			all += <-answered + " "
		}
		return strings.TrimSpace(all)
	}
}

const lanePost = laneHead + "Host: x\r\nContent-Length: 5\r\n\r\nhello"

// One connection: the lane's requests, two in one piece among them, and from
// the first other one on net/http's. Each is answered, in order, with its body.
func TestTheLaneGivesAConnectionAway(t *testing.T) {
	addr, ways := onLane(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %v", r.Method, body, err)
	})
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	br := bufio.NewReader(conn)
	other := strings.Replace(lanePost, "POST", "PUT", 1)
	for i, c := range []struct{ raw, want string }{
		{lanePost, "POST hello <nil>"},
		{lanePost + lanePost, "POST hello <nil>|POST hello <nil>"},
		{lanePost + other + lanePost, "POST hello <nil>|PUT hello <nil>|POST hello <nil>"},
		{lanePost, "POST hello <nil>"},
	} {
		io.WriteString(conn, c.raw)
		for want := range strings.SplitSeq(c.want, "|") {
			res, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			got, err := io.ReadAll(res.Body)
			if string(got) != want || err != nil || res.ContentLength != int64(len(want)) || res.Header.Get("Date") == "" {
				t.Errorf("%d: %q, want %q, %v, %+v", i, got, want, err, res.Header)
			}
		}
	}
	if got := ways(); got != "lane lane lane lane net/http net/http net/http" {
		t.Errorf("answered by %s", got)
	}
	// A head in two pieces is net/http's, too.
	second, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	io.WriteString(second, lanePost[:20])
	time.Sleep(50 * time.Millisecond)
	io.WriteString(second, lanePost[20:])
	if res, err := http.ReadResponse(bufio.NewReader(second), nil); err != nil || res.StatusCode != 200 || ways() != "net/http" {
		t.Errorf("in two pieces: %v, %v", res, err)
	}
}

// Answers are framed by what is known of them, and what breaks off looks so.
func TestAnswersOnTheLane(t *testing.T) {
	long := strings.Repeat("x", 3*laneBuffer)
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		want string // its framing, its body, and whether another request is answered
	}{
		"nothing": {func(w http.ResponseWriter, r *http.Request) {}, `200 length 0 "" <nil>, again`},
		"short":   {func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "a") }, `200 length 1 "a" <nil>, again`},
		"told": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "2")
			io.WriteString(w, "ab")
		}, `200 length 2 "ab" <nil>, again`},
		"flushed": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(201)
			http.NewResponseController(w).Flush()
			io.WriteString(w, "a")
		}, `201 length -1 "a" <nil>, again`},
		"no content":       {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }, `204 length 0 "" <nil>, again`},
		"long":             {func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, long) }, `200 length -1 "` + long + `" <nil>, again`},
		"the body is read": {func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }, `200 length 5 "hello" <nil>, again`},
		"half of it is":    {func(w http.ResponseWriter, r *http.Request) { io.CopyN(w, r.Body, 2) }, `200 length 2 "he" <nil>, again`},
		"it closes": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			io.WriteString(w, "a")
		}, `200 length 1 "a" <nil>`},
		"too short": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "3")
			io.WriteString(w, "a")
		}, `200 length 3 "a" unexpected EOF`},
		"too long": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1")
			http.NewResponseController(w).Flush()
			io.WriteString(w, "ab")
		}, `200 length 1 "" unexpected EOF`},
		"cut": {func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "a")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, `200 length -1 "a" unexpected EOF`},
		"a line break": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("A", "b\r\nConnection: close")
			io.WriteString(w, "a")
		}, `200 length 1 "a" <nil>, again`},
	} {
		t.Run(name, func(t *testing.T) {
			addr, ways := onLane(t, c.h)
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(30 * time.Second))
			br := bufio.NewReader(conn)
			ask := func() (string, error) {
				io.WriteString(conn, lanePost)
				res, err := http.ReadResponse(br, nil)
				if err != nil {
					return "", err
				}
				body, err := io.ReadAll(res.Body)
				return fmt.Sprintf("%d length %d %q %v", res.StatusCode, res.ContentLength, body, err), nil
			}
			got, err := ask()
			if err != nil {
				t.Fatal(err)
			}
			first := got
			if again, err := ask(); err == nil && again == first {
				got += ", again"
			}
			if got != c.want || !strings.HasPrefix(ways(), "lane") {
				t.Errorf("%.200s, want %.200s", got, c.want)
			}
		})
	}
}

// A client that goes away ends its request, though nobody reads from it: also
// one whose upload took longer than the first look.
func TestAClientThatLeavesTheLane(t *testing.T) {
	for name, pause := range map[string]time.Duration{"at once": 0, "after a slow upload": 3 * slowAnswer} {
		t.Run(name, func(t *testing.T) {
			begun, ended := make(chan bool, 1), make(chan time.Time, 1)
			addr, ways := onLane(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				begun <- true
				<-r.Context().Done()
				ended <- time.Now()
			})
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(conn, lanePost[:len(lanePost)-1])
			time.Sleep(pause)
			io.WriteString(conn, "o")
			<-begun
			time.Sleep(2 * slowAnswer)
			left := time.Now()
			select {
			case <-ended:
				t.Fatal("control: it ended while the client waited")
			default:
			}
			conn.Close()
			select {
			case at := <-ended:
				if took := at.Sub(left); took > time.Second {
					t.Errorf("it took %v", took)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the request went on")
			}
			if got := ways(); got != "lane" {
				t.Errorf("answered by %s", got)
			}
		})
	}
}

// A body for which there is no memory streams. An upstream that answers before
// it has come is heard at once, and its client's connection ends with the answer.
func TestAnEarlyAnswerOnTheLane(t *testing.T) {
	up, s := newVendor(t), newStage(t, nil)
	up.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(429)
		io.WriteString(w, "early")
		http.NewResponseController(w).Flush()
	})
	up.Start()
	s.Broker.held.Add(heldBytes)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(conn, "POST /b/%s/openai/v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nfirst", token)
	br := bufio.NewReader(conn)
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if res.StatusCode != 429 || string(body) != "early" || err != nil || !res.Close {
		t.Errorf("%d %q, %v", res.StatusCode, body, err)
	}
	if _, err := br.ReadByte(); err == nil {
		t.Error("the connection goes on")
	}
	s.await(Requesting, func(e Event) bool { return e.Status == 429 && e.Up == 5 })
}

// What a box's end and the broker's cut on net/http, they cut on the lane.
func TestTheLaneEnds(t *testing.T) {
	for name, end := range map[string]func(*stage){
		"its box":    func(s *stage) { s.Revoke("b1") },
		"the broker": func(s *stage) { s.Broker.Close() },
	} {
		up, s := newUpstream(t), newStage(t, nil)
		up.then = func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
		addr := s.serve("b1")
		token, _ := s.issue("b1", up.URL)
		var conns []net.Conn
		for _, raw := range []string{
			"", // it is idle
			"POST /b/" + token + "/openai/v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
		} {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, raw)
			if raw != "" {
				c.SetReadDeadline(time.Now().Add(10 * time.Second))
				if _, err := c.Read(make([]byte, 512)); err != nil {
					t.Fatalf("control: %v", err)
				}
			}
			conns = append(conns, c)
		}
		time.Sleep(2 * slowAnswer)
		end(s)
		for i, c := range conns {
			c.SetReadDeadline(time.Now().Add(5 * time.Second))
			if rest, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "reset") || strings.HasSuffix(string(rest), "0\r\n\r\n") {
				t.Errorf("%s, connection %d: %q, %v", name, i, rest, err)
			}
		}
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			s.Broker.mu.Lock()
			left := len(s.Broker.conns["b1"])
			s.Broker.mu.Unlock()
			if left == 0 {
				break
			}
			if time.Now().After(end) {
				t.Errorf("%s: %d connections are still counted", name, left)
				break
			}
		}
	}
}
