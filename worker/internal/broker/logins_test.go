package broker

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/login"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// signIn is a sign-in whose token the test chooses.
type signIn struct {
	mu       sync.Mutex
	access   login.Access
	err      error
	rejected []string
}

func (l *signIn) set(token string, err error) {
	l.mu.Lock()
	l.access, l.err = login.Access{Token: secret.New(token), Account: "acc-1"}, err
	l.mu.Unlock()
}

func (l *signIn) Access(context.Context) (login.Access, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.access, l.err
}

func (l *signIn) Reject(token secret.Text) {
	l.mu.Lock()
	l.rejected = append(l.rejected, token.Reveal())
	l.mu.Unlock()
}

func (s *stage) signIn(l *signIn) {
	s.Broker.login = func(name string) (Login, error) {
		if name != "claude" && name != "codex" {
			return nil, reason.New(reason.BadSpec, "no such sign-in")
		}
		return l, nil
	}
}

// The token of the moment goes out to the vendor's own address, with what
// belongs to it, and the client's own features stay.
func TestASignInIsSent(t *testing.T) {
	s, up, l := newStage(t, nil), newVendor(t), &signIn{}
	s.vendors(up)
	s.signIn(l)
	l.set("sk-ant-oat01-canary-1", nil)
	issued, err := s.Issue(Turn{Box: "b1", Engine: "claude", Logins: []string{"claude"}})
	if err != nil {
		t.Fatal(err)
	}
	token := issued.Env["ANTHROPIC_AUTH_TOKEN"]
	if !tokenForm(token) || strings.Join(issued.Grants, " ") != "anthropic" || !strings.Contains(strings.Join(issued.Argv, " "), "/anthropic") || issued.Env[""] != "" || !strings.HasSuffix(issued.Env["ANTHROPIC_BASE_URL"], token+"/anthropic") {
		t.Fatalf("%+v", issued)
	}
	addr := s.serve("b1")
	call := func(more ...string) answer {
		return send(t, addr, "POST", "/b/"+token+"/anthropic/v1/messages?beta=true", at("127.0.0.1:18080", more...), "{}")
	}
	for _, c := range []struct{ sent, want string }{
		{"", "oauth-2025-04-20"}, {"a-1,b-2", "a-1,b-2,oauth-2025-04-20"}, {"oauth-2025-04-20, c", "oauth-2025-04-20, c"},
	} {
		more := []string{"Authorization", "Bearer " + token, "X-Api-Key", "other", "Chatgpt-Account-Id", "stranger"}
		if c.sent != "" {
			more = append(more, "Anthropic-Beta", c.sent)
		}
		got := call(more...)
		r := up.last(t)
		if got.status != 200 || r.Header.Get("Authorization") != "Bearer sk-ant-oat01-canary-1" || r.Header.Get("X-Api-Key") != "" ||
			r.Header.Get("Anthropic-Beta") != c.want || r.Header.Get("Chatgpt-Account-Id") != "" || strings.Contains(fmt.Sprint(r), tokenPrefix) {
			t.Errorf("%q: %+v %+v", c.sent, got, r)
		}
	}
	l.set("sk-ant-oat01-canary-2", nil)
	if call(); up.last(t).Header.Get("Authorization") != "Bearer sk-ant-oat01-canary-2" {
		t.Errorf("after a renewal: %+v", up.last(t))
	}
	up.then = func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) }
	if got := call(); got.status != 401 || strings.Join(l.rejected, " ") != "sk-ant-oat01-canary-2" {
		t.Errorf("refused by the vendor: %+v, rejected %v", got, l.rejected)
	}
}

// Without a token nothing is sent, and the engine hears why in its own words.
func TestASignInThatGivesNothing(t *testing.T) {
	s, up, l := newStage(t, nil), newVendor(t), &signIn{}
	s.vendors(up)
	s.signIn(l)
	paths := map[string]string{"claude": "/anthropic/v1/messages", "codex": "/chatgpt/responses"}
	for engine, path := range paths {
		l.set("sk-canary-0123", nil)
		issued, err := s.Issue(Turn{Box: engine, Engine: engine, Logins: []string{engine}})
		if err != nil {
			t.Fatal(err)
		}
		token := issued.Env["ANTHROPIC_AUTH_TOKEN"] + issued.Env["BOTBOX_CHATGPT_TOKEN"]
		addr := s.serve(engine)
		if got := send(t, addr, "POST", "/b/"+token+path, nil, "{}"); got.status != 200 {
			t.Fatalf("control: %+v", got)
		}
		if r := up.last(t); engine == "codex" && (r.Header.Get("Chatgpt-Account-Id") != "acc-1" || r.URI != "/backend-api/codex/responses") {
			t.Errorf("%+v", r)
		}
		before := len(up.requests())
		for _, c := range []struct {
			err    error
			claude int
			codex  int
			retry  bool
		}{
			{login.ErrEnded, 401, 400, false}, {login.ErrGone, 401, 400, false}, {login.ErrAway, 502, 502, true}, {login.ErrUnsaved, 503, 503, true}, {context.Canceled, 502, 502, true},
		} {
			l.set("", c.err)
			got := send(t, addr, "POST", "/b/"+token+path, nil, "{}")
			want := map[string]int{"claude": c.claude, "codex": c.codex}[engine]
			if got.status != want || (got.header.Get("X-Should-Retry") != "false") != c.retry || !strings.Contains(got.body, `"error":{`) || !strings.Contains(got.body, "sign-in") {
				t.Errorf("%s, %v: %+v", engine, c.err, got)
			}
		}
		if len(up.requests()) != before {
			t.Error("something went out")
		}
	}
}

func TestSignInsThatAreRefused(t *testing.T) {
	s, l := newStage(t, nil), &signIn{}
	s.signIn(l)
	for name, turn := range map[string]Turn{
		"another engine's": {Box: "b", Engine: "claude", Logins: []string{"codex"}},
		"no engine's":      {Box: "b", Engine: "none", Logins: []string{"none"}},
		"beside a key":     {Box: "b", Engine: "claude", Logins: []string{"claude"}, Keys: testKeys("https://up.example")[:1]},
	} {
		if _, err := s.Issue(turn); reason.Of(err).Code != reason.BadSpec {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.Broker.login = nil
	if _, err := s.Issue(Turn{Box: "b", Engine: "claude", Logins: []string{"claude"}}); err == nil {
		t.Error("a broker without sign-ins has one")
	}
}

// The store keeps that there is a sign-in, and nothing of it; a worker that
// adopts the token opens it anew.
func TestASignInIsAdopted(t *testing.T) {
	r := Record{Box: "b1", Expires: time.Now().Add(time.Hour), Keys: []Key{{Provider: "anthropic", Login: "claude"}}}
	plain, err := r.encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodeRecord(plain)
	if err != nil || len(back.Keys) != 1 || back.Keys[0].Login != "claude" {
		t.Fatalf("%s %+v %v", plain, back, err)
	}
	s, l := newStage(t, nil), &signIn{}
	s.clock = time.Now()
	if n := s.Adopt([]Record{back}); n != 0 {
		t.Error("adopted without the sign-in")
	}
	s.signIn(l)
	if n := s.Adopt([]Record{back}); n != 1 {
		t.Error("not adopted")
	}
}

func TestEveryLoginRowIsWhole(t *testing.T) {
	for _, l := range logins {
		if _, ok := providerNamed(l.provider); !ok || l.why == "" {
			t.Errorf("%+v", l)
		}
		if _, ok := engineNamed(l.name); !ok {
			t.Errorf("%s is no engine", l.name)
		}
	}
}
