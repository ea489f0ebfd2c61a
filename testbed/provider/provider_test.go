package provider

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const key = "sk-real"

func post(t *testing.T, srv *httptest.Server, path, body string, header http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest("POST", srv.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(got)
}

func serve(t *testing.T, opt Options) (*Server, *httptest.Server) {
	s := New(opt)
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return s, srv
}

// turns are each endpoint's request in its three states. The prefix stands for
// what a broker leaves in front of the path.
var turns = []struct {
	name, path    string
	header, value string
	ask, result   string // the tools part, and what holds a tool's result
	call          string // what a tool call looks like in the answer
	last          string // the answer's last line
	refusal       string
}{
	{"anthropic", "/b/x/v1/messages?beta=true", "X-Api-Key", key,
		`"stream":true,"tools":[{"name":"Bash"}]`, `"messages":[{"role":"user","content":[{"type":"tool_result"}]}]`,
		`"partial_json":"{\"command\":\"id\"}"`, `data: {"type":"message_stop"}`, `"authentication_error"`},
	{"anthropic json", "/v1/messages", "X-Api-Key", key,
		`"tools":[{"name":"Bash"}]`, `"messages":[{"role":"user","content":[{"type":"tool_result"}]}]`,
		`"input":{"command":"id"}`, `{`, `"authentication_error"`},
	{"responses", "/b/x/openai/v1/responses", "Authorization", "Bearer " + key,
		`"stream":true,"tools":[{"type":"function","name":"exec_command"}]`, `"input":[{"type":"function_call_output"}]`,
		`"arguments":"{\"cmd\":\"id\"}"`, `data: {"response":`, `"invalid_api_key"`},
	{"responses json", "/v1/responses", "Authorization", "Bearer " + key,
		`"tools":[{"type":"function","name":"exec_command"}]`, `"input":[{"type":"function_call_output"}]`,
		`"arguments":"{\"cmd\":\"id\"}"`, `{`, `"invalid_api_key"`},
	{"chat", "/v1/chat/completions", "Authorization", "Bearer " + key,
		`"stream":true,"tools":[{"type":"function","function":{"name":"bash"}}]`, `"messages":[{"role":"tool"}]`,
		`"arguments":"{\"command\":\"id\"}"`, `data: [DONE]`, `"invalid_api_key"`},
	{"chat json", "/v1/chat/completions", "Authorization", "Bearer " + key,
		`"tools":[{"type":"function","function":{"name":"bash"}}]`, `"messages":[{"role":"tool"}]`,
		`"arguments":"{\"command\":\"id\"}"`, `{`, `"invalid_api_key"`},
	{"gemini", "/v1beta/models/m:streamGenerateContent?alt=sse", "X-Goog-Api-Key", key,
		`"tools":[{"functionDeclarations":[{"name":"run_shell_command"}]}]`, `"contents":[{"parts":[{"functionResponse":{}}]}]`,
		`"args":{"command":"id"}`, `data: {`, `"UNAUTHENTICATED"`},
	{"gemini array", "/v1beta/models/m:streamGenerateContent", "X-Goog-Api-Key", key,
		`"tools":[{"functionDeclarations":[{"name":"run_shell_command"}]}]`, `"contents":[{"parts":[{"functionResponse":{}}]}]`,
		`"args":{"command":"id"}`, `[{`, `"UNAUTHENTICATED"`},
	{"gemini json", "/v1beta/models/m:generateContent", "X-Goog-Api-Key", key,
		`"tools":[{"functionDeclarations":[{"name":"run_shell_command"}]}]`, `"contents":[{"parts":[{"functionResponse":{}}]}]`,
		`"args":{"command":"id"}`, `{`, `"UNAUTHENTICATED"`},
}

func TestTurn(t *testing.T) {
	for _, tt := range turns {
		t.Run(tt.name, func(t *testing.T) {
			s, srv := serve(t, Options{Key: key, Tool: "id", Reply: "the end"})
			good := http.Header{tt.header: {tt.value}}

			res, got := post(t, srv, tt.path, "{"+tt.ask+"}", good)
			if res.StatusCode != 200 || !strings.Contains(got, tt.call) || strings.Contains(got, "the end") {
				t.Errorf("a request that offers the tool: %d %s", res.StatusCode, got)
			}
			res, got = post(t, srv, tt.path, "{"+tt.ask+","+tt.result+"}", good)
			if res.StatusCode != 200 || !strings.Contains(got, "the end") || strings.Contains(got, tt.call) {
				t.Errorf("a request with the tool's result: %d %s", res.StatusCode, got)
			}
			lines := strings.Split(strings.TrimSpace(got), "\n")
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, tt.last) {
				t.Errorf("last line %q, want %q", last, tt.last)
			}
			if stream := strings.HasPrefix(tt.last, "data:"); stream != (res.Header.Get("Content-Type") == "text/event-stream") {
				t.Errorf("content type %q", res.Header.Get("Content-Type"))
			}
			checkJSON(t, got)
			_, got = post(t, srv, tt.path, `{"stream":false}`, good)
			if !strings.Contains(got, "the end") {
				t.Errorf("a request that offers no tool: %s", got)
			}
			if n := len(s.Requests()); n != 3 {
				t.Errorf("%d requests logged, want 3", n)
			}
		})
	}
}

// checkJSON wants every data line, or the whole body, to be JSON.
func checkJSON(t *testing.T, body string) {
	t.Helper()
	for line := range strings.Lines(body) {
		data, sse := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if data == "" || data == "[DONE]" || (!sse && strings.HasPrefix(line, "event: ")) {
			continue
		}
		if !json.Valid([]byte(data)) {
			t.Errorf("not JSON: %s", data)
		}
	}
}

func TestCredential(t *testing.T) {
	for _, tt := range turns {
		t.Run(tt.name, func(t *testing.T) {
			_, srv := serve(t, Options{Key: key})
			sep := "?"
			if strings.Contains(tt.path, "?") {
				sep = "&"
			}
			other := "X-Goog-Api-Key"
			if other == tt.header {
				other = "X-Api-Key"
			}
			for _, row := range []struct {
				what, path string
				header     http.Header
				want       int
			}{
				{"the key once", tt.path, http.Header{tt.header: {tt.value}}, 200},
				{"no key", tt.path, http.Header{}, 401},
				{"another key", tt.path, http.Header{tt.header: {tt.value + "x"}}, 401},
				{"twice", tt.path, http.Header{tt.header: {tt.value, tt.value}}, 401},
				{"another provider's header", tt.path, http.Header{other: {key}}, 401},
				{"a token left beside it", tt.path, http.Header{tt.header: {tt.value}, other: {"token"}}, 401},
				{"a token left in the query", tt.path + sep + "key=token", http.Header{tt.header: {tt.value}}, 401},
				{"a query that cannot be read", tt.path + sep + "%zz", http.Header{tt.header: {tt.value}}, 401},
			} {
				res, got := post(t, srv, row.path, "{}", row.header)
				if res.StatusCode != row.want {
					t.Errorf("%s: status %d, want %d", row.what, res.StatusCode, row.want)
				}
				if row.want == 401 && (!strings.Contains(got, tt.refusal) || strings.Contains(got, key)) {
					t.Errorf("%s: refusal %s", row.what, got)
				}
			}
		})
	}
}

func TestOtherRequests(t *testing.T) {
	var log bytes.Buffer
	s, srv := serve(t, Options{Key: key, Log: &log})
	good := http.Header{"X-Api-Key": {key}}
	if res, err := srv.Client().Head(srv.URL + "/b/x/anthropic"); err != nil || res.StatusCode != 200 {
		t.Errorf("HEAD probe: %v %v", res, err)
	}
	if _, got := post(t, srv, "/v1/messages/count_tokens", "{}", good); got != "{\"input_tokens\":42}\n" {
		t.Errorf("count_tokens: %s", got)
	}
	if res, _ := post(t, srv, "/v1/other", "{}", good); res.StatusCode != 404 {
		t.Errorf("unknown endpoint: %d", res.StatusCode)
	}
	if res, got := post(t, srv, "/v1/messages", "[]", good); res.StatusCode != 400 || !strings.Contains(got, "invalid_request_error") {
		t.Errorf("a body that is no object: %d %s", res.StatusCode, got)
	}
	var last Request
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 4 || json.Unmarshal([]byte(lines[3]), &last) != nil {
		t.Fatalf("log of %d lines, want 4", len(lines))
	}
	if seen := s.Requests()[3]; last.Body != "[]" || last.URI != "/v1/messages" || last.URI != seen.URI || last.Header.Get("X-Api-Key") != key {
		t.Errorf("logged %+v, kept %+v", last, seen)
	}
}

// A streamed event must leave at once, or no test of a broker's buffering
// could tell who held it back.
func TestPace(t *testing.T) {
	const pace = 300 * time.Millisecond
	_, srv := serve(t, Options{Key: key, Pace: pace})
	req, _ := http.NewRequest("POST", srv.URL+"/v1/messages", strings.NewReader(`{"stream":true}`))
	req.Header.Set("X-Api-Key", key)
	begin := time.Now()
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := res.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	first := time.Since(begin)
	io.Copy(io.Discard, res.Body)
	if whole := time.Since(begin); whole < 5*pace || whole-first < 4*pace {
		t.Errorf("first byte after %v, all after %v: not one event at a time", first, whole)
	}
}
