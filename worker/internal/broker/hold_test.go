package broker

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// Many bodies at once, of one length and each another's: buffers that go round
// never carry one box's words into another's request.
func TestHeldBodiesDoNotMix(t *testing.T) {
	up, s := newVendor(t), newStage(t, nil)
	up.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/early") { // answers before it has read the body
			w.WriteHeader(429)
			return
		}
		body, _ := io.ReadAll(r.Body) // first: writing ends reading here
		w.Write(body)
	})
	up.Start()
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			box := fmt.Sprint("b", i)
			token, _ := s.issue(box, up.URL)
			url := "http://" + s.serve(box) + "/b/" + token + "/anthropic/v1/messages"
			for n := range 60 {
				body := bytes.Repeat([]byte{byte('a' + i)}, 1+(n*7919)%heldBody)
				if n%5 == 0 {
					if res, err := http.Post(url+"/early", "", bytes.NewReader(body)); err == nil {
						io.Copy(io.Discard, res.Body)
						res.Body.Close()
					}
					continue
				}
				res, err := http.Post(url, "", bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || !bytes.Equal(got, body) {
					t.Errorf("box %d: %d bytes came back as %d others, %v", i, len(body), len(got), err)
				}
			}
		})
	}
	all.Wait()
	if n := s.held.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

// A body that does not come to its end is not sent.
func TestAHeldBodyThatBreaksOff(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /b/%s/openai/v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf", token)
	conn.Close()
	s.await(Requesting, func(e Event) bool { return e.Code == "client_gone" && e.Up == 4 })
	if len(up.requests()) != 0 || s.held.Load() != 0 {
		t.Errorf("%d requests went out, %d bytes are counted", len(up.requests()), s.held.Load())
	}
}
