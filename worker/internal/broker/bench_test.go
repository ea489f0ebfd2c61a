package broker

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// 74 KB is what Codex posts for a one-word prompt.
func BenchmarkPost74KB(b *testing.B) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, `{"ok":true}`)
	}))
	b.Cleanup(up.Close)
	s := newStage(b, nil)
	s.Broker.log = func(Event) {}
	token, _ := s.issue("b1", up.URL)
	proxied := "http://" + s.serve("b1") + "/b/" + token + "/openai/v1/responses"
	body := bytes.Repeat([]byte("0123456789abcdef"), 74<<10/16)
	for name, url := range map[string]string{"direct": up.URL + "/v1/responses", "proxied": proxied} {
		client := &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}}
		post := func() {
			res, err := client.Post(url, "application/json", bytes.NewReader(body))
			if err != nil || res.StatusCode != 200 {
				b.Fatal(err, res)
			}
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		b.Run(name+"/one", func(b *testing.B) {
			defer reportCPU(b)()
			for b.Loop() {
				post()
			}
		})
		b.Run(name+"/many", func(b *testing.B) {
			defer reportCPU(b)()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					post()
				}
			})
		})
	}
}

// reportCPU adds what client, broker and upstream used together: on a machine
// with other work it tells more than the time that went by.
func reportCPU(b *testing.B) func() {
	used := func() time.Duration {
		var u unix.Rusage
		unix.Getrusage(unix.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	begin := used()
	return func() { b.ReportMetric(float64(used()-begin)/float64(b.N), "cpu-ns/op") }
}

func BenchmarkIssueAndRevoke(b *testing.B) {
	s := newStage(b, openStore(b, b.TempDir()))
	s.Broker.log = func(Event) {}
	for b.Loop() {
		s.issue("b1", "https://up.example")
		s.Revoke("b1")
	}
}
