package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func (s *stage) issueLimited(box, upstream string, limits Limits) string {
	s.t.Helper()
	issued, err := s.Issue(Turn{Box: box, Engine: "none", Keys: testKeys(upstream), Limits: limits})
	if err != nil {
		s.t.Fatal(err)
	}
	return issued.Env["ANTHROPIC_API_KEY"]
}

func TestMeter(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	m := newMeter(Limits{Concurrent: 1, PerMinute: 2})
	want := func(what, code string, wait time.Duration) {
		t.Helper()
		if c, w := m.begin(now); c != code || w != wait {
			t.Errorf("%s: %q after %v, want %q after %v", what, c, w, code, wait)
		}
	}
	want("first", "", 0)
	want("while it is open", "limit_concurrent", time.Second)
	m.end()
	want("second", "", 0)
	m.end()
	want("third in the minute", "limit_requests", 30*time.Second)
	now = now.Add(20 * time.Second)
	want("20 s later", "limit_requests", 10*time.Second)
	now = now.Add(10 * time.Second)
	want("30 s later", "", 0)
	m.end()
	now = now.Add(time.Hour)
	want("much later", "", 0)
	m.end()
	want("much later, second", "", 0)
	m.end()
	want("not more saved up than a minute's", "limit_requests", 30*time.Second)
	if c, _ := newMeter(Limits{}).begin(now); c != "" {
		t.Errorf("no limits: %s", c)
	}
}

// Each limit, each vendor's shape, and what the engine is told about trying
// again. The requests that are refused do not go out.
func TestLimitsAreAnsweredInTheVendorsShape(t *testing.T) {
	for name, c := range map[string]struct {
		limits Limits
		retry  string // Retry-After, and so another try is welcome
	}{
		"concurrent": {Limits{Concurrent: 1}, "1"},
		"requests":   {Limits{PerMinute: 1}, "60"},
		"bytes":      {Limits{Bytes: 20}, ""},
		"tokens":     {Limits{Tokens: 10}, ""},
	} {
		up, s := newUpstream(t), newStage(t, nil)
		addr := s.serve("b1")
		token := s.issueLimited("b1", up.URL, c.limits)
		hold := make(chan bool)
		up.then = func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"usage":{"input_tokens":9,"output_tokens":1,"prompt_tokens":0},"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":0}}`)
			w.(http.Flusher).Flush()
			if name == "concurrent" {
				<-hold
			}
		}
		for grant, shape := range map[string]struct{ path, body string }{
			"anthropic": {"/v1/messages", `{"error":{"message":"M","type":"rate_limit_error"},"type":"error"}`},
			"openai":    {"/v1/responses", `{"error":{"code":"limit_%s","message":"M","param":null,"type":"%s"}}`},
			"gemini":    {"/v1beta/models/m:x", `{"error":{"code":429,"message":"M","status":"RESOURCE_EXHAUSTED"}}`},
		} {
			uri := "/b/" + token + "/" + grant + shape.path
			var first answer
			done := make(chan bool)
			go func() { first = send(t, addr, "POST", uri, nil, "{}"); close(done) }()
			if name == "concurrent" {
				for len(up.requests()) == 0 || !strings.HasSuffix(up.requests()[len(up.requests())-1].URI, shape.path) {
					time.Sleep(time.Millisecond)
				}
			} else {
				<-done
				s.await(Requesting, func(e Event) bool { return e.Grant == grant && e.Status == 200 })
			}
			before := len(up.requests())
			got := send(t, addr, "POST", uri, nil, "{}")
			want := shape.body
			if grant == "openai" {
				kind := "insufficient_quota"
				if c.retry != "" {
					kind = "rate_limit_error"
				}
				want = fmt.Sprintf(want, name, kind)
			}
			retry := got.header.Get("X-Should-Retry") != "false"
			if got.status != 429 || withoutMessage(t, got.body) != want || got.header.Get("Retry-After") != c.retry || retry != (c.retry != "") {
				t.Errorf("%s, %s: %d %v\n%s\nwant\n%s", name, grant, got.status, got.header, got.body, want)
			}
			if len(up.requests()) != before {
				t.Errorf("%s, %s: the refused request went out", name, grant)
			}
			if name == "concurrent" {
				hold <- true
				<-done
			}
			if first.status != 200 {
				t.Errorf("control, %s, %s: %d", name, grant, first.status)
			}
		}
	}
}

func TestAnUploadEndsAtTheLimitOfBytes(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token := s.issueLimited("b1", up.URL, Limits{Bytes: 1 << 20})
	uri := "http://" + addr + "/b/" + token + "/anthropic/v1/messages"
	if res, err := http.Post(uri, "", strings.NewReader("{}")); err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	if res, err := http.Post(uri, "", io.LimitReader(zeros{}, 8<<20)); err == nil { // or the connection was cut under the upload
		if res.StatusCode != 429 {
			t.Errorf("%d", res.StatusCode)
		}
		res.Body.Close()
	}
	s.await(Requesting, func(e Event) bool { return e.Code == "limit_bytes" && e.Up > 900_000 && e.Up < 2<<20 })
}

// An answer that is cut has told no usage, so its bytes are counted: closing
// early is no way to spend nothing.
func TestACutAnswerIsPaidFor(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token := s.issueLimited("b1", up.URL, Limits{Tokens: 1000})
	up.then = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":1}}}`+"\n\n")
		io.WriteString(w, strings.Repeat("data: {}\n\n", 1000))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	res, err := http.Post("http://"+addr+"/b/"+token+"/anthropic/v1/messages", "", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	io.ReadFull(res.Body, make([]byte, 10_000))
	res.Body.Close()
	s.await(Requesting, func(e Event) bool { return e.Tokens >= 2500 && e.Code == "client_gone" })
	if got := send(t, addr, "POST", "/b/"+token+"/anthropic/v1/messages", nil, "{}"); got.status != 429 {
		t.Errorf("%d", got.status)
	}
}

// What the vendors answer, streamed and whole, cut at every place.
func TestUsageOfEachVendor(t *testing.T) {
	for name, c := range map[string]struct {
		kind, body string
		want       int64
		whole      bool
	}{
		"anthropic": {"application/json", `{"content":[{"input":{"usage":{"output_tokens":9999}}}],"usage":{"input_tokens":10,"cache_read_input_tokens":5,"cache_creation_input_tokens":2,"output_tokens":3,"service_tier":"standard","server_tool_use":{"output_tokens":77}}}`, 20, true},
		"anthropic stream": {"text/event-stream; charset=utf-8", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n" +
			"event: content_block_delta\ndata: {\"delta\":{\"text\":\"data: {\\\"usage\\\":{\\\"output_tokens\\\":5000}}\"}}\n\n: comment {\"usage\":{\"output_tokens\":6000}}\n\n" +
			"event: message_delta\r\ndata:{\"usage\":{\"output_tokens\":40}}\r\n\r\n", 50, true},
		"openai":        {"application/json", `[1,{"usage":{"output_tokens":1}}]`, 0, false},
		"responses":     {"application/json", `{"output":[{"usage":{"input_tokens":1}}],"usage":{"input_tokens":7,"input_tokens_details":{"cached_tokens":4,"input_tokens":900},"output_tokens":2,"total_tokens":9}}`, 9, true},
		"stream":        {"text/event-stream", "data: {\"type\":\"response.completed\",\"response\":{\"output\":[[[[[[{\"a\":[]}]]]]]],\"usage\":{\"input_tokens\":7,\"output_tokens\":2}}}\n\n", 9, true},
		"chat":          {"text/event-stream", "data: {\"choices\":[],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":6,\"total_tokens\":10}}\n\ndata: [DONE]\n\n", 10, true},
		"gemini":        {"application/json", `{"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4,"thoughtsTokenCount":5,"totalTokenCount":12}}`, 12, true},
		"gemini array":  {"application/json", `[{"usageMetadata":{"promptTokenCount":3}},{"a":[{"usageMetadata":{"promptTokenCount":70}}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4}}]`, 7, true},
		"odd numbers":   {"application/json", `{"usage":{"input_tokens":-5,"output_tokens":1e9,"prompt_tokens":1.5,"completion_tokens":"8","cache_read_input_tokens":true}}`, 0, false},
		"escaped names": {"application/json", `{"us\u0061ge":{"output_tokens":5},"usage":{"output\u005ftokens":5}}`, 0, false},
		"huge":          {"application/json", `{"usage":{"output_tokens":99999999999999999999,"input_tokens":9000000000000000000}}`, usageMost, false},
		"unfinished":    {"application/json", `{"usage":{"input_tokens":7,"output_tokens":2`, 7, false},
		"none":          {"text/plain", "no JSON } ] : , \" {", 0, false},
	} {
		for piece := range []int{1, 2, 3, 7, 1000} {
			u := newUsage(c.kind)
			for rest := []byte(c.body); len(rest) > 0; {
				n := min(piece+1, len(rest))
				u.read(rest[:n])
				rest = rest[n:]
			}
			if got, whole := u.total(); got != c.want || whole != c.whole {
				t.Errorf("%s: %d tokens, whole %v, want %d, %v", name, got, whole, c.want, c.whole)
				break
			}
		}
	}
}

// Whatever comes, the memory is bounded; and of JSON it reads what the JSON
// package reads.
func FuzzUsage(f *testing.F) {
	f.Add([]byte(`{"usage":{"input_tokens":10,"output_tokens":3},"b":[{"usage":{}}]}`), false)
	f.Add([]byte("data: {\"message\":{\"usage\":{\"input_tokens\":1}}}\n\ndata:\ndata: ["), true)
	f.Add([]byte(`{"\"usage":{"output_tokens":1},"usage":{"output_tokens":[2],"input_tokens":4 }}`), false)
	f.Fuzz(func(t *testing.T, data []byte, sse bool) {
		u := newUsage(map[bool]string{true: "text/event-stream"}[sse])
		u.read(data)
		if cap(u.text) > 2*usageText || len(u.path) > usageDepth || len(u.most) > len(usageNames) || len(u.key) > usageText {
			t.Fatalf("%q: it grew", data)
		}
		if sse || !json.Valid(data) || bytes.Contains(data, []byte(`\`)) {
			return
		}
		var v struct {
			Usage map[string]json.RawMessage `json:"usage"`
		}
		d := json.NewDecoder(bytes.NewReader(data))
		if d.Decode(&v) != nil || strings.Count(strings.ToLower(string(data)), "usage") != 1 {
			return
		}
		raw, ok := v.Usage["output_tokens"]
		var n int64
		if !ok || strings.Count(string(data), "tokens") != 1 || json.Unmarshal(raw, &n) != nil || n < 0 || len(raw) > usageText || bytes.ContainsAny(raw, "eE.-") {
			return
		}
		if strings.Contains(string(data), `"usage"`) && u.most["output_tokens"] != min(n, usageMost) {
			t.Fatalf("%q: %v", data, u.most)
		}
	})
}
