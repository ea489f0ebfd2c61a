package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func fed(stream string, step int) (string, []string) {
	var seen []string
	r := &endpointEvents{rewrite: func(data string) string { seen = append(seen, data); return "NEW" }}
	var out []byte
	for i := 0; i < len(stream); i += step {
		out = append(out, r.feed([]byte(stream[i:min(i+step, len(stream))]))...)
	}
	return string(append(out, r.rest()...)), seen
}

func TestEndpointEventsAreRewritten(t *testing.T) {
	long := strings.Repeat("x", endpointEventMost)
	for _, c := range []struct{ stream, want, data string }{
		{"event: endpoint\ndata: /m?s=1\n\nevent: message\ndata: /m?s=1\n\n", "event: endpoint\ndata: NEW\n\nevent: message\ndata: /m?s=1\n\n", "/m?s=1"},
		{"event:endpoint\r\ndata:/m\r\n\r\nrest", "event:endpoint\ndata: NEW\n\nrest", "/m"},
		{"data: /m\nevent: endpoint\n\n", "event: endpoint\ndata: NEW\n\n", "/m"},
		{"\ufeffevent: endpoint\ndata: /m\n\n", "event: endpoint\ndata: NEW\n\n", "/m"},
		{"id: 4\nretry: 9\nevent: endpoint\ndata: /m\n\n", "id: 4\nretry: 9\nevent: endpoint\ndata: NEW\n\n", "/m"},
		{": first\n\nevent: endpoint\ndata: /m\n\n", ": first\n\nevent: endpoint\ndata: NEW\n\n", "/m"},
		{": first\nevent: endpoint\ndata: /m\n\n", ": first\nevent: endpoint\ndata: NEW\n\n", "/m"},
		{"event: endpoint\ndata: /m", "event: endpoint\ndata: NEW\n\n", "/m"}, // mcp-go reads what is not complete
		{"event: endpoint\n\n", "event: endpoint\n\n", ""},
		{"event: endpoint2\ndata: /m\n\n", "event: endpoint2\ndata: /m\n\n", ""},
		{"data: event: endpoint\ndata: /m\n\n", "data: event: endpoint\ndata: /m\n\n", ""},
		{"event: message\r\ndata: a\r\n\r\nevent: message\rdata: b\r\rdata: c\n\n", "event: message\r\ndata: a\r\n\r\nevent: message\rdata: b\r\rdata: c\n\n", ""},
		{"data: " + long + "\nevent: endpoint\n\nevent: endpoint\ndata: /m\n\n", "data: " + long + "\nevent: endpoint\n\nevent: endpoint\ndata: NEW\n\n", "/m"},
		{"\n\n\n", "\n\n\n", ""},
	} {
		for _, step := range []int{1, 3, len(c.stream)} {
			got, seen := fed(c.stream, step)
			if same := strings.ReplaceAll(got, "\r\n", "\n") == strings.ReplaceAll(c.want, "\r\n", "\n"); !same || strings.Join(seen, ",") != c.data {
				t.Errorf("%.60q in steps of %d: %.80q %q", c.stream, step, got, seen)
			}
		}
	}
}

// A line of a comment and a whole event go on at once, whatever ends the lines.
func TestEventsAreNotHeldBack(t *testing.T) {
	for _, s := range []string{": ping\n", ": ping\r\n", "data: a\n\n", "data: a\r\n\r\n", "event: message\ndata: a\n\n: ping\n"} {
		r := &endpointEvents{rewrite: func(string) string { return "NEW" }}
		if got := string(r.feed([]byte(s))); got != s {
			t.Errorf("%q: %q went on", s, got)
		}
	}
}

// FuzzEndpoint: what is no endpoint event passes to the byte, in pieces as at
// once, and no endpoint event of ordinary length gets through.
func FuzzEndpoint(f *testing.F) {
	f.Add([]byte("event: endpoint\ndata: /m\n\n: c\n\ndata: x\r\n\r\n"), 2)
	f.Add([]byte("event: endpoint\rdata: /m\r\rdata: y\n"), 1)
	f.Fuzz(func(t *testing.T, stream []byte, step int) {
		step = max(1, step&0xff)
		got, seen := fed(string(stream), step)
		whole, all := fed(string(stream), len(stream)+1)
		if got != whole || len(seen) != len(all) {
			t.Fatalf("in pieces %q, at once %q", got, whole)
		}
		if len(seen) == 0 && got != string(stream) {
			t.Fatalf("%q came out as %q", stream, got)
		}
		if len(stream) >= endpointEventMost {
			return
		}
		for _, e := range strings.Split(strings.Join(eventLines(got), "\n"), "\n\n") {
			name, data := "", ""
			for line := range strings.SplitSeq(e, "\n") {
				field, value, _ := strings.Cut(line, ":")
				switch field {
				case "event":
					name = strings.TrimPrefix(value, " ")
				case "data":
					data += strings.TrimPrefix(value, " ")
				}
			}
			if name == "endpoint" && data != "NEW" && data != "" {
				t.Fatalf("%q: an endpoint event with %q got through", stream, data)
			}
		}
	})
}

// An event of ours stands between two of the upstream's, whatever the pieces.
func TestOurEventsStandBetween(t *testing.T) {
	const stream = "event: a\ndata: 1\n\ndata: 2\r\n\r\ndata: 3\n\n"
	for at := 0; at <= len(stream); at++ {
		var out bytes.Buffer
		s := newEventStream(func(p []byte) error { out.Write(p); return nil }, time.Hour)
		s.Write([]byte(stream[:at]))
		if !s.insert([]byte("data: ours\n\n")) {
			t.Fatal("refused")
		}
		s.Write([]byte(stream[at:]))
		s.close()
		got := strings.ReplaceAll(out.String(), "\r\n", "\n")
		events := strings.Split(strings.TrimSuffix(got, "\n\n"), "\n\n")
		rest := strings.Replace(got, "data: ours\n\n", "", 1)
		if len(events) != 4 || !strings.Contains("\n\n"+got, "\n\ndata: ours\n\n") || rest != strings.ReplaceAll(stream, "\r\n", "\n") {
			t.Errorf("at %d: %q", at, got)
		}
		if s.insert(nil) {
			t.Error("a closed stream takes an event")
		}
	}
}

func TestAStreamThatFailsTakesNoEvent(t *testing.T) {
	s := newEventStream(func([]byte) error { return errors.New("gone") }, time.Hour)
	defer s.close()
	if s.insert([]byte("data: x\n\n")) {
		t.Error("an event was taken")
	}
	if _, err := s.Write([]byte("data: x\n\n")); err == nil {
		t.Error("no error")
	}
}

// A quiet stream gets comments, and never inside of an event.
func TestQuietStreamsLive(t *testing.T) {
	half := make(chan bool)
	up := newUpstream(t)
	up.then = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: first\n\n")
		w.(http.Flusher).Flush()
		<-half
		fmt.Fprint(w, "event: message\nda")
		w.(http.Flusher).Flush()
		<-half
		fmt.Fprint(w, "ta: second\n\n")
	}
	s := newMCPStage(t, up.URL+"/mcp")
	s.Broker.quiet = 50 * time.Millisecond
	l := s.listen(s.base)
	if e := l.event(); e != "data: first\n\n" {
		t.Fatalf("%q", e)
	}
	for range 3 {
		if e := l.event(); e != string(keepAlive) {
			t.Fatalf("%q is no comment", e)
		}
	}
	half <- true
	time.Sleep(300 * time.Millisecond) // six comments' time, in the middle of an event
	half <- true
	rest, err := io.ReadAll(l.r)
	text := strings.ReplaceAll(string(rest), string(keepAlive), "")
	if err != nil || text != "event: message\ndata: second\n\n" || strings.Contains(string(rest), "second\n\n:") && !strings.HasSuffix(string(rest), "\n\n") {
		t.Errorf("%v, %q", err, rest)
	}
	if strings.Contains(string(rest), "message\n:") {
		t.Errorf("a comment stands in an event: %q", rest)
	}
}

func TestSecretsInPaths(t *testing.T) {
	for s, want := range map[string]bool{
		"": false, "mcp": false, "r20241105-notifications-initialized": false, "my-long-server-name-2": false, "averyveryverylongword": false, "12345678901234567890": false,
		"a1b2c3d4e5f6a7b8c9d0": true, "sk-1path2canary3key4x56": true, "550e8400-e29b-41d4-a716-446655440000": true, "NmY0YWE5ZjItOGU3Mi00": true,
	} {
		if got := secretSegment(s); got != want {
			t.Errorf("%s: %v", s, got)
		}
	}
}

// The reader gives what the events give, in whatever pieces it is asked.
func TestEndpointReader(t *testing.T) {
	const stream = "event: endpoint\ndata: /m\n\nevent: message\ndata: a\n\n: c\nevent: endpoint\ndata: /x"
	for _, size := range []int{1, 5, 4096} {
		r := &endpointReader{src: strings.NewReader(stream), events: endpointEvents{rewrite: func(string) string { return "NEW" }}}
		var out []byte
		for buf := make([]byte, size); ; {
			n, err := r.Read(buf)
			out = append(out, buf[:n]...)
			if err != nil {
				break
			}
		}
		if want := "event: endpoint\ndata: NEW\n\nevent: message\ndata: a\n\n: c\nevent: endpoint\ndata: NEW\n\n"; string(out) != want {
			t.Errorf("%d: %q", size, out)
		}
	}
}
