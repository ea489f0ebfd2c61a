package broker

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestBodiesPassByteForByte(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	random := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	var back []byte
	up.then = func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Encoding", r.Header.Get("Content-Encoding"))
		if r.ContentLength >= 0 {
			w.Header().Set("Content-Length", fmt.Sprint(len(back)))
		}
		w.Write(back)
	}
	sizes := []int{0, 1, 4095, 4096, 32 << 10, 74 << 10, 33 << 20}
	for i := range 40 {
		size := random.IntN(200 << 10)
		if i < len(sizes) {
			size = sizes[i]
		}
		body := make([]byte, size)
		for j := range body {
			body[j] = byte(random.Uint32())
		}
		if i%3 == 0 {
			var z bytes.Buffer
			zw := gzip.NewWriter(&z)
			zw.Write(body)
			zw.Close()
			body = z.Bytes()
		}
		mu.Lock()
		back = append([]byte("answer"), body...)
		mu.Unlock()
		var reader io.Reader = bytes.NewReader(body)
		if i%2 == 1 {
			reader = io.MultiReader(reader) // hides the length: chunked
		}
		req, _ := http.NewRequest("POST", "http://"+addr+"/b/"+token+"/openai/v1/responses", reader)
		req.Header.Set("Content-Encoding", "gzip")
		res, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || sha256.Sum256(got) != sha256.Sum256(append([]byte("answer"), body...)) {
			t.Errorf("%d bytes: the answer changed (%v)", size, err)
		}
		if sha256.Sum256(up.last(t).Body) != sha256.Sum256(body) {
			t.Errorf("%d bytes: the request changed", size)
		}
	}
}

func TestTooLargeBody(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	uri := "/b/" + token + "/anthropic/v1/messages"
	raw := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", uri, bodyBytes+1)
	got := exchangeRaw(t, addr, "POST", raw)
	if got.status != 413 || !strings.Contains(got.body, "request_too_large") || len(s.dials) != 0 {
		t.Errorf("declared: %d %s, %d dials", got.status, got.body, len(s.dials))
	}
	req, _ := http.NewRequest("POST", "http://"+addr+uri, io.MultiReader(io.LimitReader(zeros{}, bodyBytes+1)))
	if res, err := (&http.Transport{}).RoundTrip(req); err == nil { // or the connection was cut under the upload
		if res.StatusCode != 413 {
			t.Errorf("chunked: %d", res.StatusCode)
		}
		res.Body.Close()
	}
	s.await(Requesting, func(e Event) bool { return e.Code == "too_large" && e.Up > bodyBytes })
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
