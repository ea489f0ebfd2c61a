package broker

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/mcpserver"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

const (
	initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	listTools  = `{"jsonrpc":"2.0","id":"list","method":"tools/list"}`
	callEcho   = `{"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}},"jsonrpc":"2.0","id":7}`
)

// The configured address is taken to the byte, and what is below it is below.
func TestMCPTargets(t *testing.T) {
	for _, c := range []struct{ configured, asked, want string }{
		{"/mcp", "", "/mcp"},
		{"/mcp/", "", "/mcp/"},
		{"", "", "/"},
		{"/", "", "/"},
		{"/mcp", "/", "/mcp/"},
		{"/mcp", "/x", "/mcp/x"},
		{"/mcp/", "/x", "/mcp/x"},
		{"/mcp", "/a%2Bb/c;v=1", "/mcp/a%2Bb/c;v=1"},
		{"/m%20p", "/x", "/m%20p/x"},
		{"/mcp?b=2&a=1", "", "/mcp?b=2&a=1"},
		{"/mcp?b=2;a=1&b=3", "?z=9;y&b=4&b=5", "/mcp?b=2;a=1&b=3&z=9;y&b=4&b=5"},
		{"/mcp", "?a=%7e&A=+", "/mcp?a=%7e&A=+"},
		{"/mcp", "?", "/mcp?"},
		{"/mcp?", "", "/mcp?"},
		{"/mcp", "?key=mine", "/mcp?key=mine"},
		{"/mcp?key=theirs-canary&q=1", "?key=mine&q=2", "/mcp?key=theirs-canary&q=1&q=2"},
		{"/mcp?key=theirs-canary", "?%6Bey=mine", "/mcp?key=theirs-canary"},
	} {
		up := newUpstream(t)
		s := newMCPStage(t, up.URL+c.configured)
		if a := send(t, s.addr, "POST", s.base+c.asked, mcpHead(), listTools); a.status != 200 {
			t.Fatalf("%+v: %d", c, a.status)
		}
		if got := up.last(t); got.URI != c.want || got.Host != strings.TrimPrefix(up.URL, "http://") || string(got.Body) != listTools {
			t.Errorf("%+v: %s %s %s", c, got.URI, got.Host, got.Body)
		}
	}
	up := newUpstream(t)
	s := newMCPStage(t, up.URL+"/mcp")
	for _, uri := range []string{"/..", "/../admin", "/%2e%2e/admin", "/a/..;/b", "/%2fadmin", "/a\\b", "/~AAAA", "/~"} {
		a := send(t, s.addr, "POST", s.base+uri, mcpHead(), callEcho)
		if a.status != 200 || !strings.Contains(a.body, `"isError":true`) || len(up.requests()) > 0 {
			t.Errorf("%s: %d %s, %d requests", uri, a.status, a.body, len(up.requests()))
		}
	}
}

// The server gets its headers and what the client says of the message, and
// nothing else that could sign in; the client gets what belongs to MCP.
func TestMCPHeaders(t *testing.T) {
	up := newUpstream(t)
	up.then = func(w http.ResponseWriter, r *http.Request) {
		for _, pair := range []string{"Mcp-Session-Id: s-1", "Mcp-Odd: x", "Set-Cookie: a=b", "Link: <http://x/>", "Content-Location: /x", "Content-Type: application/json"} {
			name, value, _ := strings.Cut(pair, ": ")
			w.Header().Set(name, value)
		}
		io.WriteString(w, `{}`)
	}
	server := notes(up.URL + "/mcp")
	server.Headers["X-Team"], server.Headers["Accept"] = secret.New("blue"), secret.New("text/plain")
	s := newMCPStage(t, up.URL)
	s.base = strings.TrimPrefix(s.lease("box_a", server).Addresses["notes"], boxAddr)
	a := s.post(listTools, "Authorization", "Bearer omb", "X_Team", "red", "x-team", "red", "Cookie", "c=d", "Origin", "http://x", "X-Api-Key", "mine",
		"Mcp-Session-Id", "s-0", "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list", "Mcp-Param-City", "Ulm", "Last-Event-Id", "7", "Accept-Encoding", "gzip", "User-Agent", "u")
	got := up.last(t).Header
	want := map[string]string{
		"Authorization": mcpKey, "X-Team": "blue", "Accept": "application/json, text/event-stream", "Accept-Encoding": "identity", "Content-Type": "application/json",
		"Content-Length": fmt.Sprint(len(listTools)), "Mcp-Session-Id": "s-0", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list", "Mcp-Param-City": "Ulm",
		"Last-Event-Id": "7", "User-Agent": "u",
	}
	for name, values := range got {
		if len(values) != 1 || values[0] != want[name] {
			t.Errorf("%s: %v", name, values)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if a.header.Get("Mcp-Session-Id") != "s-1" || a.header.Get("Mcp-Odd") != "x" || len(challenges(a)) > 0 {
		t.Errorf("%+v", a.header)
	}
}

// What a server echoes of its headers does not reach the box, in whatever form.
func TestMCPEchoesAreOverwritten(t *testing.T) {
	up := newUpstream(t)
	up.then = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Debug", r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", r.Header.Get("X-Want"))
		json.NewEncoder(w).Encode([]string{r.Header.Get("Authorization"), r.RequestURI, r.Header.Get("X-Login"), "pass-canary-word", "region-blue"})
	}
	server := notes(up.URL + "/s/1path2canary3key4x56/mcp?api_key=query-canary-1")
	server.Headers["X-Login"] = secret.New("Basic dXNlcjpwYXNzLWNhbmFyeS13b3Jk") // user:pass-canary-word
	server.Headers["X-Region"] = secret.New("region-blue")
	s := newMCPStage(t, up.URL)
	s.base = strings.TrimPrefix(s.lease("box_a", server).Addresses["notes"], boxAddr)
	for _, kind := range []string{"application/json", "text/event-stream", "text/plain"} {
		a := s.post(listTools, "X-Want", kind)
		if text := a.body + fmt.Sprint(a.header); strings.Contains(text, "canary") || !strings.Contains(text, "omb_redacted") {
			t.Errorf("%s: %s", kind, text)
		}
		if !strings.Contains(a.body, "region-blue") {
			t.Errorf("an ordinary word was taken for a secret: %s", a.body)
		}
	}
	if e := s.await(Requesting, func(e Event) bool { return e.Redacted > 0 }); e.Grant != "mcp-notes" || e.Route != "tools/list" || e.Conversation != "talk" {
		t.Errorf("%+v", e)
	}
}

// Redirects on the server's own origin are followed here; others are words.
func TestMCPRedirects(t *testing.T) {
	other := newUpstream(t)
	up := newUpstream(t)
	hops := 0
	up.then = func(w http.ResponseWriter, r *http.Request) {
		status, to := 0, ""
		if answers := strings.Split(r.Header.Get("X-Answers"), " "); hops < len(answers) {
			fmt.Sscanf(answers[hops], "%d,%s", &status, &to)
		}
		hops++
		if to = strings.ReplaceAll(to, "HERE", up.URL); status == 0 {
			fmt.Fprintf(w, `{"at":%q}`, r.RequestURI)
			return
		}
		w.Header().Set("Location", to)
		w.WriteHeader(status)
	}
	s := newMCPStage(t, up.URL+"/mcp")
	for _, c := range []struct {
		method, answer string
		status         int
		want           string
	}{
		{"POST", "307,/mcp/", 200, `{"at":"/mcp/"}`},
		{"POST", "308,HERE/mcp/x?a=1;b", 200, `{"at":"/mcp/x?a=1;b"}`},
		{"POST", "307,elsewhere", 200, `{"at":"/elsewhere"}`},
		{"GET", "302,/mcp/", 200, `{"at":"/mcp/"}`},
		{"DELETE", "307,/mcp/", 200, `{"at":"/mcp/"}`},
		{"POST", "307,http://" + other.Listener.Addr().String() + "/mcp", 200, `"isError":true`},
		{"POST", "307,https://" + up.Listener.Addr().String() + "/mcp", 200, `points to https://`},
		{"POST", "308,//evil.example/mcp", 200, `points to http://evil.example, where its headers must not go`},
		{"POST", "307,http://u:p@" + up.Listener.Addr().String() + "/", 200, `"isError":true`},
		{"POST", "302,/mcp/", 200, `"isError":true`},
		{"POST", "303,/mcp/", 200, `"isError":true`},
		{"POST", "307,/a/../b", 200, `{"at":"/b"}`},
		{"POST", "307,/%2e%2e/b", 200, `"isError":true`},
		{"POST", "300,/mcp/", 200, `"isError":true`},
		{"POST", "307,/a 308,/b 307,/mcp", 200, `{"at":"/mcp"}`},
		{"GET", "307,//evil.example/", 405, "points to"},
		{"DELETE", "307,//evil.example/", 200, ""},
	} {
		body := ""
		if c.method == "POST" {
			body = callEcho
		}
		hops = 0
		a := send(t, s.addr, c.method, s.base, mcpHead("X-Answers", c.answer), body)
		if a.status != c.status || !strings.Contains(a.body, c.want) || a.header.Get("Location") != "" || strings.Contains(a.body, "canary") {
			t.Errorf("%s %s: %d %s", c.method, c.answer, a.status, a.body)
		}
		if last := up.last(t); c.method == "POST" && string(last.Body) != callEcho || last.Header.Get("Authorization") != mcpKey {
			t.Errorf("%s %s: the last hop had %+v", c.method, c.answer, last)
		}
	}
	if n := len(other.requests()); n != 0 {
		t.Errorf("another origin got %d requests", n)
	}
	// Round and round: the fifth hop is not asked.
	loop := newUpstream(t)
	loop.then = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/mcp", http.StatusTemporaryRedirect)
	}
	s = newMCPStage(t, loop.URL+"/mcp")
	if a := s.post(callEcho); a.status != 502 || !strings.Contains(a.body, "on and on") || len(loop.requests()) != 1+mcpHops {
		t.Errorf("%d %s after %d requests", a.status, a.body, len(loop.requests()))
	}
	// A message that was not kept cannot be sent twice, and one that was can.
	for size, status := range map[int]int{mcpBuffer - 200: 200, mcpBuffer + 200: 502} {
		up := newUpstream(t)
		up.then = func(w http.ResponseWriter, r *http.Request) {
			if r.RequestURI == "/mcp" {
				w.Header().Set("Location", "/mcp/")
				w.WriteHeader(http.StatusTemporaryRedirect)
			}
		}
		s := newMCPStage(t, up.URL+"/mcp")
		body := `{"method":"tools/call","params":"` + strings.Repeat("x", size) + `","id":"last"}`
		a := s.post(body)
		if a.status != status || status == 502 && !strings.Contains(a.body, `"id":"last"`) {
			t.Errorf("%d bytes: %d %s", size, a.status, a.body)
		}
		if status == 200 && string(up.last(t).Body) != body {
			t.Errorf("%d bytes: the body changed on its way", size)
		}
	}
}

// A server that wants a key: every request gets the answer that lets its
// engine go on, and no trace of the challenge.
func TestMCPRefusalsByMethod(t *testing.T) {
	status, challenge := 401, true
	up := newUpstream(t)
	up.then = func(w http.ResponseWriter, r *http.Request) {
		if challenge {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="http://127.0.0.1/.well-known/x"`)
		}
		w.Header().Set("Location", "http://127.0.0.1/sign-in")
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, `{"error":"canary"}`)
	}
	s := newMCPStage(t, up.URL+"/mcp")
	call := func(method string, id any) string {
		b, _ := json.Marshal(map[string]any{"method": method, "id": id, "params": map[string]any{"name": "echo"}})
		return string(b)
	}
	for _, c := range []struct {
		what, method, body string
		header             []string
		status             int
		want               string
	}{
		{"call", "POST", call("tools/call", 7), nil, 200, `{"id":7,"jsonrpc":"2.0","result":{"content":[{"text":"The MCP server notes refused the key that it was given (HTTP 401). Somebody`},
		{"call, later revision", "POST", call("tools/call", "a"), []string{"Mcp-Protocol-Version", "2026-07-28"}, 200, `"isError":true,"resultType":"complete"}`},
		{"call, events only", "POST", call("tools/call", 7), []string{"Accept", "text/event-stream"}, 200, "event: message\ndata: {\"id\":7,"},
		{"initialize", "POST", initialize, nil, 200, `{"error":{"code":-32010,"data":{"code":"mcp_unauthorized"},"message":"The MCP server notes refused`},
		{"discover", "POST", call("server/discover", "server-discover-probe-1"), nil, 200, `"id":"server-discover-probe-1"`},
		{"list", "POST", listTools, nil, 200, `"id":"list"`},
		{"notification", "POST", `{"method":"notifications/initialized"}`, nil, 202, ""},
		{"answer", "POST", `{"id":4,"result":{}}`, nil, 202, ""},
		{"batch", "POST", "[" + listTools + "," + callEcho + `,{"method":"n"}]`, nil, 200, `[{"error":`},
		{"batch of notifications", "POST", `[{"method":"n"}]`, nil, 202, ""},
		{"no JSON", "POST", "nonsense {", nil, 400, `"id":null`},
		{"nothing", "POST", "", nil, 400, `"id":null`},
		{"stream", "GET", "", nil, 405, "refused the key"},
		{"end", "DELETE", "", nil, 200, ""},
		{"PUT", "PUT", "x", nil, 405, ""},
		{"OPTIONS", "OPTIONS", "", nil, 405, ""},
	} {
		a := send(t, s.addr, c.method, s.base, mcpHead(c.header...), c.body)
		if a.status != c.status || !strings.Contains(a.body, c.want) || c.want == "" && c.status < 300 && a.body != "" || a.header.Get("X-Omb-Broker") != "1" {
			t.Errorf("%s: %d %s", c.what, a.status, a.body)
		}
		if found := challenges(a); len(found) > 0 {
			t.Errorf("%s: %v in %+v", c.what, found, a)
		}
		if kind := a.header.Get("Content-Type"); strings.HasPrefix(a.body, "event:") != (kind == "text/event-stream") {
			t.Errorf("%s: %s", c.what, kind)
		}
	}
	a := s.post("[" + listTools + "," + callEcho + "]")
	var batch []struct{ ID any }
	if json.Unmarshal([]byte(a.body), &batch) != nil || len(batch) != 2 || batch[0].ID != "list" || batch[1].ID != 7.0 {
		t.Errorf("batch: %s", a.body)
	}
	status = 403
	if a := s.post(callEcho); a.status != 200 || !strings.Contains(a.body, "HTTP 403") {
		t.Errorf("403 with a challenge: %+v", a)
	}
	if challenge = false; s.post(callEcho).status != 403 {
		t.Error("403 without one is the server's own answer")
	}
	status = 407
	if a := s.post(callEcho); a.status != 200 {
		t.Errorf("407: %+v", a)
	}
	// A message that is too long to be kept, whose id comes at its end.
	status, challenge = 401, true
	a = s.post(`{"method":"tools/call","params":"` + strings.Repeat("x", mcpBuffer+300<<10) + `","id":"at the end"}`)
	if a.status != 200 || !strings.Contains(a.body, `"id":"at the end"`) {
		t.Errorf("long: %d %.200s", a.status, a.body)
	}
}

// Answers of the handshake pass to the byte, whatever their status.
func TestMCPErrorsPass(t *testing.T) {
	up := newUpstream(t)
	up.then = func(w http.ResponseWriter, r *http.Request) {
		status, kind := 0, ""
		fmt.Sscanf(r.Header.Get("X-Want"), "%d %s", &status, &kind)
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Allow", "POST")
		w.WriteHeader(status)
		io.WriteString(w, "  {\"jsonrpc\":\"2.0\", \"id\":0,\n\"error\":{}}")
	}
	s := newMCPStage(t, up.URL+"/mcp")
	for _, want := range []string{"400 application/json", "404 application/json", "405 text/plain", "404 text/html", "403 text/plain", "406 application/json", "429 application/json", "500 application/json", "503 text/plain", "200 application/json"} {
		a := s.post(initialize, "X-Want", want)
		if fmt.Sprint(a.status, " ", a.header.Get("Content-Type")) != want || a.body != "  {\"jsonrpc\":\"2.0\", \"id\":0,\n\"error\":{}}" || a.header.Get("X-Omb-Broker") != "" || a.header.Get("Allow") != "POST" {
			t.Errorf("%s: %+v", want, a)
		}
	}
	if a := s.post(callEcho, "X-Want", "502 text/html"); a.status != 502 || !strings.Contains(a.body, `failed (HTTP 502); the fault is on the server's side`) || !strings.Contains(a.body, `"id":7`) {
		t.Errorf("a gateway's page: %+v", a)
	}
}

func TestMCPFaults(t *testing.T) {
	gone, _ := net.Listen("tcp", "127.0.0.1:0")
	gone.Close()
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = log.New(io.Discard, "", 0) // it tells of each refused certificate
	tls.StartTLS()
	defer tls.Close()
	brotli := newUpstream(t)
	brotli.then = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		w.Write([]byte("x"))
	}
	for url, want := range map[string]string{
		"http://" + gone.Addr().String() + "/mcp": "could not be reached",
		tls.URL + "/mcp":                  "certificate",
		"http://no-such-host.invalid/mcp": "name of the MCP server notes could not be resolved",
		brotli.URL + "/mcp":               "compressed",
	} {
		s := newMCPStage(t, url)
		for _, body := range []string{callEcho, listTools} {
			if a := s.post(body); a.status != 502 || !strings.Contains(a.body, want) || !strings.Contains(a.body, `"error"`) || len(challenges(a)) > 0 {
				t.Errorf("%s: %d %s", url, a.status, a.body)
			}
		}
		if a := send(t, s.addr, "GET", s.base, mcpHead(), ""); a.status != 502 {
			t.Errorf("%s: GET %d", url, a.status)
		}
	}
}

// All five revisions, each by a server that is strict about it.
func TestMCPRevisions(t *testing.T) {
	text := func(a answer) string { return strings.TrimSpace(a.body) }
	t.Run("2025", func(t *testing.T) {
		for _, revision := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
			server, url := standin(t, mcpserver.Options{Revision: revision})
			s := newMCPStage(t, url+"/mcp")
			a := s.post(initialize)
			id := a.header.Get("Mcp-Session-Id")
			if a.status != 200 || id == "" {
				t.Fatalf("%s: %+v", revision, a)
			}
			head := []string{"Mcp-Session-Id", id, "Mcp-Protocol-Version", revision}
			if a := s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, head...); a.status != 202 {
				t.Errorf("%s: %+v", revision, a)
			}
			if a := s.post(callEcho, head...); !strings.Contains(a.body, revision+" says hi") {
				t.Errorf("%s: %+v", revision, a)
			}
			if a := s.post("["+callEcho+","+listTools+"]", head...); revision == "2025-03-26" && (a.status != 200 || !strings.HasPrefix(text(a), "[")) {
				t.Errorf("%s: batch %+v", revision, a)
			} else if revision != "2025-03-26" && a.status != 400 {
				t.Errorf("%s: a batch is not of it, and got %d", revision, a.status)
			} else if revision != "2025-03-26" {
				server.Pardon()
			}
			l := s.listen(s.base, "Mcp-Session-Id", id, "Mcp-Protocol-Version", revision)
			if e := l.event(); !strings.Contains(e, "id: 1\n") || !strings.Contains(e, "event 1") {
				t.Errorf("%s: %q", revision, e)
			}
			l.conn.Close()
			l = s.listen(s.base, "Mcp-Session-Id", id, "Mcp-Protocol-Version", revision)
			if e := l.event(); !strings.Contains(e, "id: 2\n") {
				t.Errorf("%s: %q", revision, e)
			}
			l = s.listen(s.base, "Mcp-Session-Id", id, "Mcp-Protocol-Version", revision, "Last-Event-ID", "1")
			if e := l.event(); !strings.Contains(e, "id: 2\n") {
				t.Errorf("%s: resumption gave %q", revision, e)
			}
			if a := send(t, s.addr, "DELETE", s.base, mcpHead(head...), ""); a.status != 200 || server.Sessions() != 0 {
				t.Errorf("%s: DELETE %+v", revision, a)
			}
			if a := s.post(callEcho, head...); a.status != 404 || a.header.Get("X-Omb-Broker") != "" {
				t.Errorf("%s: a dead session got %+v", revision, a)
			}
		}
	})
	t.Run("2026", func(t *testing.T) {
		_, url := standin(t, mcpserver.Options{Revision: "2026-07-28"})
		s := newMCPStage(t, url+"/mcp")
		body := `{"jsonrpc":"2.0","id":"p","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
		if a := s.post(body, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "server/discover"); a.status != 200 || !strings.Contains(a.body, "supportedVersions") {
			t.Errorf("%+v", a)
		}
		if a := s.post(initialize); a.status != 404 || !strings.Contains(a.body, "-32601") {
			t.Errorf("%+v", a)
		}
		if a := s.post(strings.Replace(body, `2026-07-28"`, `2027-01-01"`, 1)); a.status != 400 || !strings.Contains(a.body, `"supported":["2026-07-28"]`) {
			t.Errorf("%+v", a)
		}
		if a := send(t, s.addr, "GET", s.base, mcpHead(), ""); a.status != 405 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("2024", func(t *testing.T) {
		for _, absolute := range []bool{false, true} {
			for _, path := range []string{"/sse", "/deep/sse/", "/s/1path2canary3key4x56/sse"} {
				_, url := standin(t, mcpserver.Options{Revision: "2024-11-05", Target: path, Absolute: absolute})
				s := newMCPStage(t, url+path)
				l := s.listen(s.base)
				e := l.event()
				to := strings.TrimSuffix(strings.TrimPrefix(e, "event: endpoint\ndata: "), "\n\n")
				if !strings.HasPrefix(to, s.base+"/~") || strings.Contains(e, "session") || strings.Contains(e, "canary") {
					t.Fatalf("%q", e)
				}
				if a := send(t, s.addr, "POST", to, mcpHead(), callEcho); a.status != 202 {
					t.Errorf("%+v", a)
				}
				if e := l.event(); !strings.Contains(e, "2024-11-05 says hi") {
					t.Errorf("%q", e)
				}
			}
		}
	})
}

// A server of 2024-11-05 that wants a key answers 401 where no client reads:
// the words come on the stream, between the events.
func TestOldTransportHearsRefusals(t *testing.T) {
	_, url := standin(t, mcpserver.Options{Revision: "2024-11-05", Target: "/sse", Refuse: "tools/call"})
	s := newMCPStage(t, url+"/sse")
	l := s.listen(s.base)
	to := strings.TrimSuffix(strings.TrimPrefix(l.event(), "event: endpoint\ndata: "), "\n\n")
	if a := send(t, s.addr, "POST", to, mcpHead(), callEcho); a.status != 202 || len(challenges(a)) > 0 {
		t.Errorf("%+v", a)
	}
	if e := l.event(); !strings.HasPrefix(e, "event: message\ndata: {\"id\":7,") || !strings.Contains(e, "refused the key") {
		t.Errorf("%q", e)
	}
	l.conn.Close()
	s.await(Requesting, func(e Event) bool { return e.Method == "GET" }) // the stream is not known any more
	if a := send(t, s.addr, "POST", to, mcpHead(), callEcho); a.status != 502 || !strings.Contains(a.body, "refused the key") {
		t.Errorf("without a stream: %+v", a)
	}
	// The address is sealed: it is good for its own server only, and cannot be made.
	broken := to[:len(to)-2] + string(to[len(to)-2]^1) + to[len(to)-1:]
	other := s.lease("box_a", notes(url+"/sse"), MCPServer{Name: "other", URL: url + "/sse"})
	_ = other
	if a := send(t, s.addr, "POST", broken, mcpHead(), callEcho); a.status != 200 || !strings.Contains(a.body, `"isError":true`) {
		t.Errorf("a forged address: %+v", a)
	}
}

// An endpoint on another host is told, and never asked.
func TestForeignEndpointsAreRefused(t *testing.T) {
	other := newUpstream(t)
	for _, endpoint := range []string{other.URL + "/messages", "//evil.example/m", "https://evil.example", "http://u@127.0.0.1/", "http://[::1", "/%2e%2e/x"} {
		up := newUpstream(t)
		up.then = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "event: endpoint\ndata: %s\n\n", endpoint)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
		s := newMCPStage(t, up.URL+"/sse")
		l := s.listen(s.base)
		e := l.event()
		to := strings.TrimSuffix(strings.TrimPrefix(e, "event: endpoint\ndata: "), "\n\n")
		if strings.Contains(e, "evil") || send(t, s.addr, "POST", to, mcpHead(), initialize).status != 202 {
			t.Errorf("%s: %q", endpoint, e)
		}
		if e := l.event(); !strings.Contains(e, `"id":0`) || !strings.Contains(e, "wants its messages sent to") {
			t.Errorf("%s: %q", endpoint, e)
		}
		if n := len(up.requests()) + len(other.requests()); n != 1 {
			t.Errorf("%s: %d requests", endpoint, n)
		}
	}
}

// What engines look for after a refusal is answered here, and goes nowhere.
func TestMCPRootIsOurs(t *testing.T) {
	up := newUpstream(t)
	s := newMCPStage(t, up.URL+"/mcp")
	for _, uri := range []string{
		"/.well-known/oauth-protected-resource" + s.base, "/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server",
		"/.well-known/oauth-authorization-server" + s.base, "/.well-known/openid-configuration", "/register", "/authorize", "/token",
	} {
		for _, method := range []string{"GET", "POST"} {
			if a := send(t, s.addr, method, uri, nil, ""); a.status != 404 || len(challenges(a)) > 0 {
				t.Errorf("%s %s: %+v", method, uri, a)
			}
		}
	}
	if n := len(up.requests()); n != 0 {
		t.Errorf("%d requests went out", n)
	}
	if slices.ContainsFunc(s.heard(), func(e Event) bool { return len(leaks(e, strings.Split(s.base, "/")[2])) > 0 }) {
		t.Error("an event holds the token")
	}
}

// A client that goes away ends its request at the server, and a server that
// breaks off leaves a body that looks broken.
func TestMCPEndsAreEnds(t *testing.T) {
	gone := make(chan bool, 1)
	up := newUpstream(t)
	up.then = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: begun\n\n")
		w.(http.Flusher).Flush()
		if r.Header.Get("X-Break") != "" {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
		gone <- true
	}
	s := newMCPStage(t, up.URL+"/mcp")
	for _, method := range []string{"GET", "POST"} {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		body := ""
		if method == "POST" {
			body = `{"id":1,"method":"subscriptions/listen"}`
		}
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", method, s.base, len(body), body)
		buf := make([]byte, 4096)
		for text := ""; !strings.Contains(text, "begun"); {
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			text += string(buf[:n])
		}
		begin := time.Now()
		conn.Close()
		select {
		case <-gone:
		case <-time.After(5 * time.Second):
			t.Errorf("%s: the server was never told", method)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("%s: the server was told after %v", method, took)
		}
		s.await(Requesting, func(e Event) bool { return e.Code == "client_gone" && e.Method == method })
	}
	l := s.listen(s.base, "X-Break", "1")
	if rest, err := io.ReadAll(l.r); err == nil {
		t.Errorf("a stream that broke off looks finished: %q", rest)
	}
}

// No line of the log and nothing that is counted holds an address or a header.
func TestMCPEventsHoldNoSecret(t *testing.T) {
	server, url := standin(t, mcpserver.Options{Revision: "2025-11-25", Refuse: "tools/call"})
	s := newMCPStage(t, url+"/mcp")
	s.post(callEcho)
	s.post(initialize)
	s.post("nonsense")
	server.Pardon()
	send(t, s.serve("box_b"), "POST", s.base, mcpHead(), callEcho)
	s.await(Stealing, func(e Event) bool { return true })
	token := strings.Split(s.base, "/")[2]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if text := fmt.Sprintf("%+v", e); strings.Contains(text, token) || strings.Contains(text, "canary") || strings.Contains(text, url) {
			t.Errorf("%s", text)
		}
	}
	if len(s.events) < 5 {
		t.Errorf("control: %d events", len(s.events))
	}
}

// What messages hold in memory is bounded for all boxes together, and given
// back; beyond the bound they stream.
func TestMCPMessagesHoldLittle(t *testing.T) {
	wait := make(chan bool)
	up := newUpstream(t)
	up.then = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("X-Wait") != "" {
			w.(http.Flusher).Flush()
			<-wait
		}
	}
	s := newMCPStage(t, up.URL+"/mcp")
	body := `{"params":"` + strings.Repeat("x", 1<<20) + `","id":1,"method":"tools/call"}`
	done := make(chan answer)
	go func() { done <- s.post(body, "X-Wait", "1") }()
	for len(up.requests()) == 0 {
		time.Sleep(time.Millisecond)
	}
	for end := time.Now().Add(5 * time.Second); s.held.Load() != 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if n := s.held.Load(); n != 0 {
		t.Errorf("while its answer streams, a message holds %d bytes", n)
	}
	wait <- true
	<-done
	s.held.Store(heldBytes) // all that there is
	if a := s.post(body); a.status != 200 || string(up.last(t).Body) != body {
		t.Errorf("without memory: %d, %d bytes arrived", a.status, len(up.last(t).Body))
	}
	up.then = func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	if a := s.post(body); a.status != 200 || !strings.Contains(a.body, `"id":1`) {
		t.Errorf("without memory, a refusal: %d %.100s", a.status, a.body)
	}
	if n := s.held.Load(); n != heldBytes {
		t.Errorf("%d bytes are not given back", n-heldBytes)
	}
}
