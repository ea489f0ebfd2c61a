package broker

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// One row for each provider: what the box sends, what the upstream must see.
func TestTheKeyIsPutInOnce(t *testing.T) {
	for _, c := range []struct{ grant, path, wantURI, header, want string }{
		{"anthropic", "/v1/messages?beta=true", "/v1/messages?beta=true", "X-Api-Key", anthropicKey},
		{"anthropic", "/messages", "/v1/messages", "X-Api-Key", anthropicKey},
		{"anthropic", "/v1/v1/messages", "/v1/messages", "X-Api-Key", anthropicKey},
		{"anthropic", "/v1/messages/count_tokens?beta=true", "/v1/messages/count_tokens?beta=true", "X-Api-Key", anthropicKey},
		{"openai", "/v1/responses", "/v1/responses", "Authorization", "Bearer " + openaiKey},
		{"openai", "/responses", "/v1/responses", "Authorization", "Bearer " + openaiKey},
		{"openai", "/v1/v1/chat/completions", "/v1/chat/completions", "Authorization", "Bearer " + openaiKey},
		{"gemini", "/v1beta/models/g-3:streamGenerateContent?alt=sse", "/v1beta/models/g-3:streamGenerateContent?alt=sse", "X-Goog-Api-Key", geminiKey},
		{"gemini", "/v1/models/m%2E1:x?key=omb&a=%7e&b=+&a=&access_token=z", "/v1/models/m%2E1:x?a=%7e&b=+&a=", "X-Goog-Api-Key", geminiKey},
	} {
		up, s := newUpstream(t), newStage(t, nil)
		addr := s.serve("b1")
		token, _ := s.issue("b1", up.URL)
		sent := http.Header{}
		for _, name := range []string{
			"Authorization", "Proxy-Authorization", "X-Api-Key", "x_api_key", "Api-Key", "X-Goog-Api-Key", "Cookie", "Cookie2",
			"X-Auth-Token", "X-Access-Token", "X-Functions-Key", "Ocp-Apim-Subscription-Key", "Cf-Access-Jwt-Assertion",
			"Cf-Aig-Authorization", "X-Amz-Security-Token", "X-Goog-User-Project", "Openai-Organization", "Openai-Project",
			"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via", "Origin", "Referer", "X-Original-Url",
			"X-Rewrite-Url", "Keep-Alive", "Proxy-Connection", "Te", "X-Hop",
		} {
			sent[name] = []string{"client-" + token}
		}
		sent["Connection"] = []string{"X-Hop, X-Api-Key"}
		kept := map[string]string{
			"Anthropic-Version": "2026-10-21", "Anthropic-Beta": "a,b", "Openai-Beta": "r", "X-Claude-Code-Session": "1",
			"X-Codex-Beta-Features": "f", "Session-Id": "s", "X-Stainless-Timeout": "600", "Idempotency-Key": "i",
			"Mcp-Method": "m", "Last-Event-Id": "9", "Accept": "text/event-stream", "Accept-Encoding": "gzip, br, zstd",
			"Content-Type": "application/json", "Content-Encoding": "zstd", "User-Agent": "engine/1", "Traceparent": "00-1",
		}
		for name, value := range kept {
			sent[name] = []string{value}
		}
		got := send(t, addr, "POST", "/b/"+token+"/"+c.grant+c.path, sent, `{"a":1}`)
		if got.status != 200 || got.body != `{"ok":true}` {
			t.Fatalf("%s%s: %d %s", c.grant, c.path, got.status, got.body)
		}
		req := up.last(t)
		if req.URI != c.wantURI || req.Method != "POST" || string(req.Body) != `{"a":1}` || req.Host != strings.TrimPrefix(up.URL, "http://") {
			t.Errorf("%s%s: upstream saw %s %s on %s, body %s", c.grant, c.path, req.Method, req.URI, req.Host, req.Body)
		}
		want := map[string]string{c.header: c.want, "Content-Length": "7"}
		for name, value := range kept {
			want[name] = value
		}
		want["Accept-Encoding"] = "identity" // the upstream may echo
		for name, values := range req.Header {
			if len(values) != 1 || want[name] != values[0] {
				t.Errorf("%s%s: upstream saw %s: %q", c.grant, c.path, name, values)
			}
			delete(want, name)
		}
		for name := range want {
			t.Errorf("%s%s: upstream did not see %s", c.grant, c.path, name)
		}
		if strings.Contains(fmt.Sprint(req.Header, req.URI), "omb_t0_") {
			t.Errorf("%s%s: the token went out", c.grant, c.path)
		}
	}
}

func TestNothingIsAddedForTheClient(t *testing.T) {
	up, s := newVendor(t), newStage(t, nil)
	s.vendors(up)
	addr := s.serve("b1")
	token := s.issueVendor("b1", Limits{})
	send(t, addr, "GET", "/b/"+token+"/openai/models?", nil, "")
	req := up.last(t)
	if len(req.Header) != 1 || req.Header.Get("Authorization") == "" || req.URI != "/v1/models?" {
		t.Errorf("upstream saw %s %v", req.URI, req.Header)
	}
}

// Ways to choose the upstream. None may reach the decoy, and none may reach
// the grant's upstream outside its table.
func TestTheBoxCannotChooseTheUpstream(t *testing.T) {
	up, decoy, s := newUpstream(t), newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL+"/base")
	host := strings.TrimPrefix(decoy.URL, "http://")
	root := "/b/" + token
	at := root + "/anthropic"
	for _, uri := range []string{
		decoy.URL + "/v1/messages",
		decoy.URL + at + "/v1/messages",
		"http://127.0.0.1:18080" + at + "/v1/messages",
		"//" + host + "/v1/messages", "*", host,
		root + "/" + decoy.URL + "/v1/messages",
		root + "/http:%2f%2f" + host + "/v1/messages",
		at + "/" + decoy.URL, at + "//" + host + "/v1/messages", at + "/@" + host + "/v1/messages",
		at + "@" + host + "/v1/messages", at + ":80@" + host + "/", at + "." + host + "/v1/messages",
		at + "/../v1/messages", at + "/v1/../../messages", at + "/v1/messages/..", at + "/v1/messages/../../x",
		at + "/v1/messages/%2e%2e/%2e%2e/admin", at + "/v1/messages/%2E./admin", at + "/v1/messages/.%2e/admin",
		at + "/v1/messages/..%2f..%2fadmin", at + "/v1/messages/%2f" + host, at + "/v1/messages/..;/admin",
		at + "/v1/messages/%252e%252e/admin", at + `/v1/messages/..\admin`, at + "/v1/messages/%5c..%5cadmin",
		at + "/v1/messages/%00", at + "/v1/messages/%0d%0aHost:%20" + host, at + "/v1/messages/%", at + "/v1/messages/%zz",
		at + "/v1/messages#@" + host, at + "/v1/messages/\u00e9", at + "/v1/./messages", at + "/./v1/messages",
		at + "/v1//messages", at + "/v2/messages", at + "/v1/v1/v1/messages", at + "/v1/messagesx",
		at + "/v1/organizations/o", at + "/v1/api_keys", at + "/v1/complete", at + "/", at, at + "?url=" + decoy.URL,
		root + "/openai/v1/organization/admin_api_keys", root + "/openai/v1/chat/completions/x", root + "/gemini/v1beta/tunedModels/x",
		root + "/gemini/models/x", root + "/gemini/v1beta/../v1beta/models", root, root + "/", "/b/", "/b", "/",
	} {
		got := send(t, addr, "POST", uri, http.Header{"X-Forwarded-Host": {host}, "X-Original-Url": {decoy.URL}}, "{}")
		if got.status < 400 || got.status > 405 {
			t.Errorf("%q: answered %d", uri, got.status)
		}
		// The same as a WebSocket, also of the provider that has them.
		uri = strings.Replace(strings.Replace(uri, "/anthropic", "/openai", 1), "/v1/messages", "/v1/responses", 1)
		if _, _, res := wsDial(t, addr, uri, http.Header{"X-Forwarded-Host": {host}, "Origin": {decoy.URL}}); res.StatusCode < 400 || res.StatusCode > 426 {
			t.Errorf("%q: a WebSocket was answered %d", uri, res.StatusCode)
		}
	}
	if n := len(up.requests()) + len(decoy.requests()); n != 0 || len(s.dials) != 0 {
		t.Errorf("%d requests and %d dials went out", n, len(s.dials))
	}
	// These are served, and by the grant's own upstream.
	for _, header := range []http.Header{
		{"Host": {host}}, {"X-Forwarded-Host": {host}}, {"Forwarded": {"host=" + host}}, {"X-Rewrite-Url": {decoy.URL}},
		{"Proxy-Connection": {"keep-alive"}}, {"Alt-Used": {host}},
	} {
		if got := send(t, addr, "POST", at+"/v1/messages?url="+decoy.URL, header, "{}"); got.status != 200 {
			t.Errorf("control %v: %d %s", header, got.status, got.body)
		}
		if req := up.last(t); req.URI != "/base/v1/messages?url="+decoy.URL || req.Host == host {
			t.Errorf("%v: upstream saw %s on %s", header, req.URI, req.Host)
		}
	}
	for _, dialled := range s.dials {
		if dialled != strings.TrimPrefix(up.URL, "http://") {
			t.Errorf("dialled %s", dialled)
		}
	}
	if len(decoy.requests()) != 0 || len(s.dials) == 0 {
		t.Errorf("decoy saw %d requests; %d dials", len(decoy.requests()), len(s.dials))
	}
}

func TestMethods(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	at := "/b/" + token + "/openai/v1"
	for _, c := range []struct {
		method, path string
		header       http.Header
		want         int
	}{
		{"POST", "/files", nil, 200}, {"DELETE", "/files/f-1", nil, 200}, {"GET", "/models", nil, 200}, {"HEAD", "/models", nil, 200},
		{"TRACE", "/models", nil, 405}, {"TRACK", "/models", nil, 405}, {"CONNECT", "/models", nil, 405}, {"OPTIONS", "/models", nil, 405},
		{"PUT", "/files", nil, 405}, {"PATCH", "/models", nil, 405}, {"DELETE", "/models", nil, 405}, {"get", "/models", nil, 405},
		{"GET", "/chat/completions", nil, 405},
		{"POST", "/responses", http.Header{"X-HTTP-Method-Override": {"TRACE"}}, 405},
		{"POST", "/responses", http.Header{"x_http_method_override": {"GET"}}, 405},
		{"POST", "/responses", http.Header{"X-HTTP-Method": {"GET"}}, 405},
		{"POST", "/responses", http.Header{"X-Method-Override": {"GET"}}, 405},
	} {
		before := len(up.requests())
		got := send(t, addr, c.method, at+c.path, c.header, "")
		if got.status != c.want {
			t.Errorf("%s %s %v: %d, want %d", c.method, c.path, c.header, got.status, c.want)
		}
		if forwarded := len(up.requests()) > before; forwarded != (c.want == 200) {
			t.Errorf("%s %s: forwarded %v", c.method, c.path, forwarded)
		}
	}
}

func TestProbesAtStartAreAnsweredHere(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	for _, path := range []string{"", "/", "/api/hello"} {
		if got := send(t, addr, "HEAD", "/b/"+token+"/anthropic"+path, nil, ""); got.status != 200 {
			t.Errorf("HEAD %q: %d", path, got.status)
		}
	}
	if got := send(t, addr, "HEAD", "/b/"+newTokenText()+"/anthropic", nil, ""); got.status != 401 {
		t.Errorf("control: HEAD with an unknown token: %d", got.status)
	}
	if n := len(up.requests()); n != 0 {
		t.Errorf("%d probes went out", n)
	}
}

func TestRefusalsHaveTheVendorsShape(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	a1, a2 := s.serve("b1"), s.serve("b2")
	live, _ := s.issue("b1", up.URL)
	dead, _ := s.issue("b3", up.URL)
	s.Revoke("b3")
	a3 := s.serve("b3")
	single, err := s.Issue(Turn{Box: "b1", Engine: "none", Keys: testKeys(up.URL)[:1]})
	if err != nil {
		t.Fatal(err)
	}
	one := single.Env["ANTHROPIC_API_KEY"]
	for _, c := range []struct {
		addr, token, grant string
		status             int
		body               string
	}{
		{a1, newTokenText(), "anthropic", 401, `{"error":{"message":"M","type":"authentication_error"},"type":"error"}`},
		{a1, newTokenText(), "openai", 401, `{"error":{"code":"unknown_token","message":"M","param":null,"type":"invalid_request_error"}}`},
		{a1, newTokenText(), "gemini", 401, `{"error":{"code":401,"message":"M","status":"UNAUTHENTICATED"}}`},
		{a1, "omb_t0_short", "openai", 401, `{"error":{"code":"unknown_token","message":"M","param":null,"type":"invalid_request_error"}}`},
		{a1, live, "mcp", 403, `{"code":"missing_grant","message":"M"}`},
		{a1, one, "openai", 403, `{"error":{"code":"missing_grant","message":"M","param":null,"type":"invalid_request_error"}}`},
		{a1, one, "gemini", 403, `{"error":{"code":403,"message":"M","status":"PERMISSION_DENIED"}}`},
		{a3, dead, "anthropic", 401, `{"error":{"message":"M","type":"authentication_error"},"type":"error"}`},
		{a3, dead, "openai", 400, `{"error":{"code":"token_revoked","message":"M","param":null,"type":"invalid_request_error"}}`},
		{a3, dead, "gemini", 401, `{"error":{"code":401,"message":"M","status":"UNAUTHENTICATED"}}`},
		{a2, one, "anthropic", 403, `{"error":{"message":"M","type":"permission_error"},"type":"error"}`},
	} {
		path := map[string]string{"gemini": "/v1beta/models/m:x", "openai": "/v1/responses"}[c.grant]
		if path == "" {
			path = "/v1/messages"
		}
		got := send(t, c.addr, "POST", "/b/"+c.token+"/"+c.grant+path, nil, "{}")
		if got.status != c.status || got.header.Get("X-Should-Retry") != "false" || got.header.Get("X-Omb-Broker") != "1" ||
			got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v", c.grant, got.status, got.header)
		}
		if body := withoutMessage(t, got.body); body != c.body {
			t.Errorf("%s %d:\n%s\nwant\n%s", c.grant, got.status, body, c.body)
		}
	}
	if n := len(up.requests()); n != 0 {
		t.Errorf("%d refused requests went out", n)
	}
	if got := send(t, a1, "POST", "/b/"+live+"/openai/responses", nil, "{}"); got.status != 200 {
		t.Errorf("control: %d", got.status)
	}
}

// withoutMessage replaces the one text that is for people.
func withoutMessage(t *testing.T, body string) string {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	inner, ok := v["error"].(map[string]any)
	if !ok {
		inner = v
	}
	if text, _ := inner["message"].(string); text == "" {
		t.Errorf("no message in %s", body)
	}
	inner["message"] = "M"
	out, _ := json.Marshal(v)
	return string(out)
}

func TestTheRootIsOurs(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	for _, uri := range []string{
		"/.well-known/oauth-protected-resource/b/" + token + "/mcp-x", "/.well-known/oauth-protected-resource",
		"/.well-known/oauth-authorization-server", "/.well-known/openid-configuration", "/register", "/authorize?x=1", "/token", "/favicon.ico",
	} {
		for _, method := range []string{"GET", "POST"} {
			got := send(t, addr, method, uri, nil, "")
			if got.status != 404 || !json.Valid([]byte(got.body)) || strings.Contains(got.body, token) {
				t.Errorf("%s %s: %d %s", method, uri, got.status, got.body)
			}
		}
	}
	if bad := leaks(s.heard(), token); len(bad) > 0 {
		t.Errorf("events hold %q", bad)
	}
}

func TestResponseHeaders(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	kept := map[string]string{
		"Retry-After": "1", "X-Should-Retry": "true", "Request-Id": "r", "Anthropic-Ratelimit-Requests-Limit": "5",
		"X-Ratelimit-Limit-Requests": "6", "Openai-Model": "m", "Openai-Processing-Ms": "7", "Content-Type": "application/json",
		"Cache-Control": "no-cache", "Mcp-Session-Id": "s", "X-Accel-Buffering": "no", "Content-Language": "en", "Date": "today",
	}
	up.then = func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for _, name := range []string{
			"Set-Cookie", "Set-Cookie2", "Www-Authenticate", "Proxy-Authenticate", "Authentication-Info", "Alt-Svc", "Location",
			"Content-Location", "Refresh", "Link", "Clear-Site-Data", "Report-To", "Nel", "Strict-Transport-Security",
			"Public-Key-Pins", "Server-Timing", "Access-Control-Allow-Origin", "X-Envoy-Upstream-Service-Time", "Access-Token",
			"X-Access-Token", "Keep-Alive", "X-Hop", "X-Omb-Broker",
		} {
			h.Set(name, "dropped")
		}
		h.Set("Connection", "X-Hop")
		for name, value := range kept {
			h.Set(name, value)
		}
		h.Set("X-Debug", "key="+anthropicKey)
		h.Set("Trailer", "X-Late")
		w.WriteHeader(418)
		io.WriteString(w, "teapot")
		h.Set("X-Late", anthropicKey)
	}
	got := send(t, addr, "POST", "/b/"+token+"/anthropic/v1/messages", nil, "{}")
	if got.status != 418 || got.body != "teapot" {
		t.Errorf("%d %q", got.status, got.body)
	}
	if v := got.header.Get("X-Debug"); strings.Contains(v, anthropicKey) || !strings.HasPrefix(v, "key=omb_redacted") {
		t.Errorf("the key came back: %q", v)
	}
	delete(got.header, "X-Debug")
	for name, values := range got.header {
		if kept[name] != values[0] && name != "Transfer-Encoding" {
			t.Errorf("the box saw %s: %q", name, values)
		}
		delete(kept, name)
	}
	if len(kept) > 0 {
		t.Errorf("the box did not see %v", kept)
	}
	if e := s.await(Requesting, func(Event) bool { return true }); e.Redacted != 1 {
		t.Errorf("redactions counted: %d", e.Redacted)
	}
}

func TestRedirectsAreNeitherFollowedNorPassed(t *testing.T) {
	up, decoy, s := newUpstream(t), newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	for _, status := range []int{300, 301, 302, 303, 307, 308} {
		up.then = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", decoy.URL)
			w.WriteHeader(status)
		}
		got := send(t, addr, "POST", "/b/"+token+"/openai/v1/responses", nil, "{}")
		if got.status != 502 || got.header.Get("Location") != "" || strings.Contains(got.body, decoy.URL) || got.header.Get("X-Should-Retry") != "false" {
			t.Errorf("%d: %d %v %s", status, got.status, got.header, got.body)
		}
	}
	if len(decoy.requests()) != 0 {
		t.Error("a redirect was followed")
	}
	up.then = func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(304) }
	if got := send(t, addr, "GET", "/b/"+token+"/openai/v1/models", nil, ""); got.status != 304 {
		t.Errorf("control: 304 became %d", got.status)
	}
}
