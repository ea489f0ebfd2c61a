package broker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// No cap: a body of any size streams through. 65 MiB is over the cap of most
// proxies, ours once among them.
func TestABodyOfAnySizeStreamsThrough(t *testing.T) {
	up, s := newVendor(t), newStage(t, nil)
	const size = 65 << 20
	got := make(chan int64, 1)
	up.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		got <- n
		io.Copy(w, io.LimitReader(zeros{}, n))
	})
	up.Start()
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	for _, chunked := range []bool{false, true} {
		req, _ := http.NewRequest("POST", "http://"+addr+"/b/"+token+"/anthropic/v1/messages", io.LimitReader(zeros{}, size))
		if !chunked {
			req.ContentLength = size
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		back, err := io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if sent := <-got; err != nil || res.StatusCode != 200 || sent != size || back != size {
			t.Errorf("chunked %v: %d, %d bytes went up and %d came back, %v", chunked, res.StatusCode, sent, back, err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// The order proves that nothing is held back: the upstream writes an event only
// after the client has read the one before.
func TestStreamsAreNotBuffered(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	next := make(chan string)
	up.then = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for event := range next {
			io.WriteString(w, event)
			w.(http.Flusher).Flush()
		}
	}
	res, err := http.Post("http://"+addr+"/b/"+token+"/anthropic/v1/messages", "application/json", strings.NewReader("{}"))
	if err != nil { // the header came although no event was written yet
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for i := range 50 {
		want := fmt.Sprintf("event: e%d\r\ndata: \xff%s\n\n", i, strings.Repeat("s", i*97))
		next <- want
		got := make([]byte, len(want))
		if _, err := io.ReadFull(lines, got); err != nil || string(got) != want {
			t.Fatalf("event %d: %q, %v", i, got, err)
		}
	}
	close(next)
	if rest, err := io.ReadAll(lines); err != nil || len(rest) != 0 {
		t.Errorf("after the last event: %q, %v", rest, err)
	}
}

func TestAnUpstreamThatBreaksOffLooksBroken(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	for _, chunked := range []bool{true, false} {
		up.then = func(w http.ResponseWriter, r *http.Request) {
			if !chunked {
				w.Header().Set("Content-Length", "100")
			}
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		res, err := http.Post("http://"+addr+"/b/"+token+"/anthropic/v1/messages", "", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if string(body) != "half" || err == nil {
			t.Errorf("chunked %v: %q, %v", chunked, body, err)
		}
	}
	s.await(Requesting, func(e Event) bool { return e.Code == "upstream_cut" })
}

func TestAClientThatGoesCancelsTheUpstream(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	gone := make(chan struct{})
	up.then = func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	}
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+addr+"/b/"+token+"/openai/v1/responses", strings.NewReader("{}"))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	res.Body.Close()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Fatal("the upstream was not cancelled")
	}
	s.await(Requesting, func(e Event) bool { return e.Code == "client_gone" })
}

// An upstream may answer before it has read the request: the answer arrives,
// and so does the rest of the request.
func TestAnAnswerBeforeTheEndOfTheRequest(t *testing.T) {
	up, s := newVendor(t), newStage(t, nil)
	rest := make(chan int64, 1)
	up.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.WriteString(w, "early ")
		w.(http.Flusher).Flush()
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			n = -1
		}
		rest <- n
		io.WriteString(w, "late")
	})
	up.Start()
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	for _, chunked := range []bool{false, true} {
		reader, writer := io.Pipe()
		req, _ := http.NewRequest("POST", "http://"+addr+"/b/"+token+"/openai/v1/responses", reader)
		if !chunked {
			req.ContentLength = 1 << 20
		}
		go writer.Write([]byte("{"))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		early := make([]byte, 6)
		if _, err := io.ReadFull(res.Body, early); err != nil || string(early) != "early " {
			t.Fatalf("%q, %v", early, err)
		}
		io.CopyN(writer, zeros{}, 1<<20-1)
		writer.Close()
		late, err := io.ReadAll(res.Body)
		res.Body.Close()
		if n := <-rest; err != nil || string(late) != "late" || n != 1<<20 {
			t.Errorf("chunked %v: %q, %v; %d bytes went up", chunked, late, err, n)
		}
	}
}

// An upstream that refuses a large upload is heard, whatever is still to send.
func TestARefusalInTheMiddleOfAnUpload(t *testing.T) {
	up, s := newVendor(t), newStage(t, nil)
	up.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(413)
		io.WriteString(w, "too large")
	})
	up.Start()
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	heard := 0
	for range 20 {
		req, _ := http.NewRequest("POST", "http://"+addr+"/b/"+token+"/openai/v1/responses", io.LimitReader(zeros{}, 100<<10))
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			continue // both ends gave up at once; net/http's client sees a reset
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 413 || string(body) != "too large" {
			t.Fatalf("%d %q", res.StatusCode, body)
		}
		heard++
	}
	if heard == 0 {
		t.Error("the refusal was never heard")
	}
}

// A stream that is quiet costs little: a box may have many of them open for
// hours. What the far ends in this process take is counted, too.
func TestQuietStreamsAreSmall(t *testing.T) {
	const streams, most = 200, 40 << 10
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			c.Read(make([]byte, 4096)) // all of a short request
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: a\n\n\r\n")
		}
	}()
	s := newStage(t, nil)
	addr := s.serve("b1")
	issued, err := s.Issue(Turn{Box: "b1", Engine: "none", Keys: testKeys("http://" + l.Addr().String()), Limits: Limits{Concurrent: streams + 1}})
	if err != nil {
		t.Fatal(err)
	}
	open := func() {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "POST /b/%s/openai/v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", issued.Env["OPENAI_API_KEY"])
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		got := make([]byte, 0, 512)
		for !strings.Contains(string(got), "data: a") {
			n, err := c.Read(got[len(got):cap(got)])
			if got = got[:len(got)+n]; err != nil {
				t.Fatalf("%q, %v", got, err)
			}
		}
	}
	used := func() (heap, stack uint64) {
		var m runtime.MemStats
		for range 2 { // the second also empties the pools
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, m.StackInuse
	}
	open()
	heap, stack := used()
	for range streams {
		open()
	}
	heapNow, stackNow := used()
	each := (heapNow - heap) / streams
	t.Logf("%d bytes each, and %d of stacks", each, (stackNow-stack)/streams)
	if each > most {
		t.Errorf("a quiet stream costs %d bytes, want at most %d", each, most)
	}
}
