package broker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
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
