package broker

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
)

func (s *stage) loopback(box, name, url string) (token string, issued Issued) {
	s.t.Helper()
	issued, err := s.Issue(Turn{Box: box, Engine: "none", Loopbacks: []Loopback{{name, url}}})
	if err != nil {
		s.t.Fatal(err)
	}
	at, _ := strings.CutPrefix(issued.Addresses[name], boxAddr+"/b/")
	token, _, _ = strings.Cut(at, "/")
	return token, issued
}

func TestALoopbackServerGetsNoCredential(t *testing.T) {
	u := newUpstream(t)
	s := newStage(t, nil)
	addr := s.serve("box")
	token, issued := s.loopback("box", "my-ollama", u.URL+"/v1")
	want := boxAddr + "/b/" + token + "/my-ollama"
	if issued.Addresses["my-ollama"] != want || issued.Env["BOTBOX_UPSTREAM_MY_OLLAMA"] != want || !slices.Equal(issued.Grants, []string{"my-ollama"}) || len(issued.Argv) != 0 || len(issued.Env) != 1 {
		t.Errorf("%+v", issued)
	}
	got := send(t, addr, "POST", "/b/"+token+"/my-ollama/chat/completions?a=b&key=mine", http.Header{
		"Authorization": {"Bearer mine"}, "X-Api-Key": {"mine"}, "Cookie": {"a=mine"}, "Proxy-Authorization": {"Basic mine"}, "X-Forwarded-For": {"1.1.1.1"}, "X-Keep": {"yes"},
	}, `{"model":"m"}`)
	if got.status != 200 || got.body != `{"ok":true}` {
		t.Fatalf("%+v", got)
	}
	seen := u.last(t)
	if seen.Method != "POST" || seen.URI != "/v1/chat/completions?a=b" || seen.Host != strings.TrimPrefix(u.URL, "http://") || string(seen.Body) != `{"model":"m"}` || seen.Header.Get("X-Keep") != "yes" {
		t.Errorf("the server saw %+v", seen)
	}
	for name, values := range seen.Header {
		if strings.Contains(strings.Join(values, " "), "mine") || name == "Authorization" || name == "X-Forwarded-For" {
			t.Errorf("the server saw %s: %q", name, values)
		}
	}
	e := s.await(Requesting, func(e Event) bool { return e.Status == 200 })
	if e.Grant != "my-ollama" || e.Route != "/**" || len(leaks(e, token)) != 0 {
		t.Errorf("%+v", e)
	}
}

// The token works for its own server, in its own box, while the box lives.
func TestALoopbackTokenIsBound(t *testing.T) {
	u, other := newUpstream(t), newUpstream(t)
	s := newStage(t, nil)
	addr, stranger := s.serve("box"), s.serve("other")
	token, _ := s.loopback("box", "one", u.URL)
	elsewhere, _ := s.loopback("other", "two", other.URL)
	for path, code := range map[string]string{
		"/b/" + token + "/two/x": "no such grant", "/b/" + token + "/anthropic/v1/messages": "no such grant", "/b/" + token + "/": "not_found",
		"/b/omb_t0_x/one/x": "unknown_token",
	} {
		if got := send(t, addr, "GET", path, nil, ""); !strings.Contains(got.body, code) {
			t.Errorf("%s: %+v, want %s", path, got, code)
		}
	}
	for _, method := range []string{"DELETE", "PUT", "PATCH", "OPTIONS"} {
		if got := send(t, addr, method, "/b/"+token+"/one/api/delete", nil, ""); got.status != 405 {
			t.Errorf("%s: %+v", method, got)
		}
	}
	if got := send(t, addr, "GET", "/b/"+token+"/one/x", http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}, ""); got.status != 426 {
		t.Errorf("an upgrade: %+v", got)
	}
	if len(u.requests())+len(other.requests()) != 0 {
		t.Errorf("the servers saw %v %v", u.requests(), other.requests())
	}
	if got := send(t, addr, "GET", "/b/"+token+"/one/x", nil, ""); got.status != 200 {
		t.Errorf("positive control: %+v", got)
	}
	if got := send(t, addr, "GET", "/b/"+elsewhere+"/two/x", nil, ""); got.status != 403 {
		t.Errorf("another box's token: %+v", got)
	}
	if got := send(t, stranger, "GET", "/b/"+elsewhere+"/two/x", nil, ""); got.status != 401 {
		t.Errorf("it lives on after it was stolen: %+v", got)
	}
	s.Revoke("box")
	if got := send(t, addr, "GET", "/b/"+token+"/one/x", nil, ""); got.status != 401 {
		t.Errorf("after the box's end: %+v", got)
	}
}

func TestALoopbackRedirectIsNotFollowed(t *testing.T) {
	u, other := newUpstream(t), newUpstream(t)
	u.then = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/x", http.StatusTemporaryRedirect)
	}
	s := newStage(t, nil)
	addr := s.serve("box")
	token, _ := s.loopback("box", "one", u.URL)
	if got := send(t, addr, "GET", "/b/"+token+"/one/x", nil, ""); got.status != 502 || got.header.Get("Location") != "" || len(other.requests()) != 0 {
		t.Errorf("%+v; the other was asked %d times", got, len(other.requests()))
	}
}

var loopbackURLs = map[string]bool{
	"http://127.0.0.1:11434": true, "http://127.0.0.1:11434/": true, "http://127.0.0.1:11434/v1": true, "http://localhost:1234/v1": true, "http://[::1]:8080": true, "http://127.8.8.8:1": true,
	"": false, "127.0.0.1:11434": false, "https://127.0.0.1:11434": false, "http://127.0.0.1": false, "http://127.0.0.1:": false, "http://127.0.0.1:0": false, "http://127.0.0.1:65536": false,
	"http://10.0.0.1:80": false, "http://169.254.169.254:80": false, "http://example.com:80": false, "http://localhost.:80": false, "http://LOCALHOST:80": false, "http://foo.localhost:80": false,
	"http://0.0.0.0:80": false, "http://127.1:80": false, "http://2130706433:80": false, "http://0177.0.0.1:80": false, "http://[::]:80": false, "http://[::ffff:127.0.0.1]:80": false, "http://[::1%25lo]:80": false,
	"http://u@127.0.0.1:80": false, "http://u:p@127.0.0.1:80": false, "http://127.0.0.1:80?x": false, "http://127.0.0.1:80/?x=y": false, "http://127.0.0.1:80/#x": false, "http://127.0.0.1:80/a/../b": false,
	"http://127.0.0.1:80/%2e%2e": false, "unix:///run/x": false, "http:///x": false, "http://127.0.0.1:80@evil:80/": false, "http://127.0.0.1:80\\@evil": false,
}

func TestWhichLoopbackServersThereCanBe(t *testing.T) {
	s := newStage(t, nil)
	try := func(all ...Loopback) error {
		_, err := s.Issue(Turn{Box: "box", Engine: "none", Loopbacks: all})
		return err
	}
	for url, good := range loopbackURLs {
		if err := try(Loopback{"x", url}); (err == nil) != good || err != nil && (reason.Of(err).Code != reason.BadSpec || strings.Contains(err.Error(), "u:p")) {
			t.Errorf("%q: %v", url, err)
		}
	}
	const url = "http://127.0.0.1:1"
	for name, good := range map[string]bool{
		"ollama": true, "a": true, "lm-studio-2": true, strings.Repeat("a", 32): true,
		"": false, strings.Repeat("a", 33): false, "Ollama": false, "2x": false, "-x": false, "a_b": false, "a/b": false, "a b": false, "..": false, "ä": false,
		"anthropic": false, "openai": false, "gemini": false, "mcp-notes": false,
	} {
		if err := try(Loopback{name, url}); (err == nil) != good {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	if err := try(Loopback{"a", url}, Loopback{"a", url}); err == nil {
		t.Error("one name twice")
	}
	many := make([]Loopback, MaxLoopbacks+1)
	for i := range many {
		many[i] = Loopback{strings.Repeat("a", i+1), url}
	}
	if err := try(many...); err == nil {
		t.Error("too many")
	}
	if err := try(many[1:]...); err != nil {
		t.Errorf("as many as there may be: %v", err)
	}
}

// Whatever is taken is dialled as a literal address of the loopback.
func FuzzLoopback(f *testing.F) {
	for url := range loopbackURLs {
		f.Add("ollama", url)
	}
	f.Fuzz(func(t *testing.T, name, raw string) {
		u, problem := Loopback{name, raw}.parse()
		if problem != "" {
			return
		}
		host := u.Hostname()
		if u.Scheme != "http" || u.Port() == "" || u.User != nil || u.RawQuery != "" || !strings.HasPrefix(host, "127.") && host != "::1" || strings.ContainsAny(name, "/.% ") {
			t.Errorf("%q %q is %q", name, raw, u)
		}
	})
}

// A record of a loopback server outlives its worker as a key's does.
func TestALoopbackRecord(t *testing.T) {
	plain, err := Record{Box: "b", Expires: time.Unix(1, 0).UTC(), Loopbacks: []Loopback{{"x", "http://127.0.0.1:1/v1"}}}.encode()
	if err != nil {
		t.Fatal(err)
	}
	r, err := decodeRecord(plain)
	if err != nil || !slices.Equal(r.Loopbacks, []Loopback{{"x", "http://127.0.0.1:1/v1"}}) {
		t.Errorf("%+v, %v", r, err)
	}
}
