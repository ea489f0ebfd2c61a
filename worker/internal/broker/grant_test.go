package broker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

func secrets(plain map[string]string) map[string]secret.Text {
	env := map[string]secret.Text{}
	for name, value := range plain {
		env[name] = secret.New(value)
	}
	return env
}

func TestTakeRemovesKeysAndBaseURLs(t *testing.T) {
	env := secrets(map[string]string{
		"ANTHROPIC_AUTH_TOKEN": "tok", "ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": "https://gate.example/a?x=1",
		"GOOGLE_API_KEY": "goog", "OPENAI_BASE_URL": "http://127.0.0.1:11434/v1", "OPENAI_API_KEY": "",
		"XAI_API_KEY": "x", "GROQ_API_KEY": "g", "MISTRAL_API_KEY": "", "PATH": "/bin",
	})
	keys, raw, err := Take(env, "claude")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range keys {
		got = append(got, k.Provider+" "+k.EnvName+" "+k.Secret.Reveal()+" "+k.Upstream)
	}
	want := []string{
		"anthropic ANTHROPIC_API_KEY key https://gate.example/a?x=1",
		"anthropic ANTHROPIC_AUTH_TOKEN tok https://gate.example/a?x=1",
		"gemini GOOGLE_API_KEY goog https://generativelanguage.googleapis.com",
	}
	if !slices.Equal(got, want) {
		t.Errorf("keys\n%q\nwant\n%q", got, want)
	}
	if want := []string{"GROQ_API_KEY", "XAI_API_KEY"}; !slices.Equal(raw, want) {
		t.Errorf("unbrokered %q, want %q", raw, want)
	}
	left := slices.Sorted(maps.Keys(env))
	if want := []string{"GROQ_API_KEY", "MISTRAL_API_KEY", "PATH", "XAI_API_KEY"}; !slices.Equal(left, want) {
		t.Errorf("left in the environment %q, want %q", left, want)
	}
}

func TestTakeNamesTheVariableNotItsValue(t *testing.T) {
	for _, c := range []struct{ name, value string }{
		{"ANTHROPIC_BASE_URL", "ftp://canary/"},
		{"ANTHROPIC_BASE_URL", "https://user:canary@host/"},
		{"ANTHROPIC_BASE_URL", "https://canary/#x"},
		{"OPENAI_BASE_URL", "https://canary/#"},
		{"OPENAI_BASE_URL", "canary"},
		{"OPENAI_BASE_URL", "https:///canary"},
		{"OPENAI_BASE_URL", "https://canary:0/"},
		{"OPENAI_BASE_URL", "https://canary:99999/"},
		{"OPENAI_BASE_URL", "https://canary/a/../b"},
		{"GOOGLE_GEMINI_BASE_URL", "https://canary/%2e%2e/b"},
		{"GOOGLE_GEMINI_BASE_URL", "https:canary"},
		{"GOOGLE_GEMINI_BASE_URL", "https://canary/\x7f"},
		{"ANTHROPIC_API_KEY", "canary\n"},
		{"OPENAI_API_KEY", "canary canary"},
		{"GEMINI_API_KEY", "canary\u00e9"},
	} {
		env := secrets(map[string]string{c.name: c.value, "PATH": "/bin"})
		_, _, err := Take(env, "opencode")
		if err == nil {
			t.Errorf("%s=%q was taken", c.name, c.value)
			continue
		}
		if reason.Of(err).Code != reason.BadSpec || !strings.Contains(err.Error(), c.name) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s=%q: %s: %v", c.name, c.value, reason.Of(err).Code, err)
		}
		if len(env) != 2 {
			t.Errorf("%s: the environment was changed", c.name)
		}
	}
}

func TestEveryProviderRowIsWhole(t *testing.T) {
	for _, p := range providers {
		if p.why == "" || p.shape == plainShape || len(p.keys) == 0 {
			t.Errorf("%s: the row is not whole", p.name)
		}
		if _, problem := parseUpstream(p.base); problem != "" {
			t.Errorf("%s: the default upstream %s", p.name, problem)
		}
		for _, r := range p.routes {
			if r.why == "" || r.methods == "" {
				t.Errorf("%s %s: the row is not whole", p.name, r.path)
			}
		}
		for _, row := range unbrokerable {
			if _, _, ok := p.keyVarNamed(row.env); ok || row.why == "" {
				t.Errorf("%s is in both tables, or has no reason", row.env)
			}
		}
	}
	for _, l := range launches {
		if _, ok := engineNamed(l.engine); !ok || l.why == "" {
			t.Errorf("launch row of %s: unknown engine or no reason", l.engine)
		}
		if _, ok := providerNamed(l.provider); !ok && l.provider != "" {
			t.Errorf("launch row of %s: unknown provider", l.engine)
		}
	}
	for _, r := range refusals {
		if r.why == "" || r.message == "" {
			t.Errorf("%s: the row is not whole", r.code)
		}
	}
}

func TestIssueRefuses(t *testing.T) {
	s := newStage(t, nil)
	good := Turn{Box: "b1", Engine: "none", Keys: testKeys("https://up.example")}
	if _, err := s.Issue(good); err != nil {
		t.Fatalf("control: %v", err)
	}
	for name, change := range map[string]func(*Turn){
		"engine":   func(u *Turn) { u.Engine = "vim" },
		"box":      func(u *Turn) { u.Box = "" },
		"long":     func(u *Turn) { u.TTL = MaxTTL + 1 },
		"negative": func(u *Turn) { u.TTL = -1 },
		"provider": func(u *Turn) { u.Keys = []Key{{"acme", "ACME_API_KEY", secret.New("k"), "https://up.example"}} },
		"variable": func(u *Turn) { u.Keys[0].EnvName = "OPENAI_API_KEY" },
		"empty":    func(u *Turn) { u.Keys[0].Secret = secret.Text{} },
		"upstream": func(u *Turn) { u.Keys[0].Upstream = "file:///etc/passwd" },
	} {
		turn := good
		turn.Keys = testKeys("https://up.example")
		change(&turn)
		if _, err := s.Issue(turn); err == nil {
			t.Errorf("%s: issued", name)
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("a broker without a boot key")
	}
	s.Close()
	if _, err := s.Issue(good); err == nil {
		t.Error("issued after Close")
	}
}

func TestNoKeysNoToken(t *testing.T) {
	s := newStage(t, nil)
	for _, e := range engines {
		issued, err := s.Issue(Turn{Box: "b1", Engine: e.name, Unbrokered: []string{"XAI_API_KEY"}})
		if err != nil || len(issued.Grants) != 0 || !issued.Expires.IsZero() || len(s.tokens) != 0 {
			t.Errorf("%s: %+v, %v, %d tokens", e.name, issued, err, len(s.tokens))
		}
		if all := fmt.Sprint(issued); strings.Contains(all, tokenPrefix) || strings.Contains(all, boxAddr) {
			t.Errorf("%s: it is led to the broker without a token: %s", e.name, all)
		}
		if !slices.Equal(issued.Unbrokered, []string{"XAI_API_KEY"}) {
			t.Errorf("%s: unbrokered %q", e.name, issued.Unbrokered)
		}
	}
}

func TestTokenTextIsRandomAndWellFormed(t *testing.T) {
	have := map[string]bool{}
	for range 100_000 {
		text := newTokenText()
		if !tokenForm(text) || len(text) != len(tokenPrefix)+43 || have[text] {
			t.Fatal("a token is malformed or was made twice")
		}
		have[text] = true
	}
	good := newTokenText()
	for _, bad := range []string{"", tokenPrefix, good[:len(good)-1], good + "A", "omb_t1_" + good[7:], good[:20] + "/" + good[21:], good[:20] + "\n" + good[20:]} {
		if tokenForm(bad) {
			t.Errorf("%q has a token's form", bad)
		}
	}
}

func TestOnlyTheDigestIsKept(t *testing.T) {
	s := newStage(t, nil)
	text, _ := s.issue("b1", "https://up.example")
	var d digest
	for have := range s.tokens {
		d = have
	}
	if d != s.Broker.digest(text) {
		t.Error("control: the token's digest is not the map's key")
	}
	other, err := New(Options{BootKey: [32]byte{2}})
	if err != nil || other.digest(text) == d {
		t.Error("the digest does not depend on the boot key")
	}
}

func TestPreferredKeyIsSent(t *testing.T) {
	for _, c := range []struct {
		env          []string
		header, want string
	}{
		{[]string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"}, "X-Api-Key", "v-ANTHROPIC_API_KEY"},
		{[]string{"ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"}, "X-Api-Key", "v-ANTHROPIC_API_KEY"},
		{[]string{"ANTHROPIC_AUTH_TOKEN"}, "Authorization", "Bearer v-ANTHROPIC_AUTH_TOKEN"},
	} {
		var keys []Key
		for _, name := range c.env {
			keys = append(keys, Key{"anthropic", name, secret.New("v-" + name), "https://up.example"})
		}
		grants, err := newGrants(Record{Keys: keys}, nil)
		if err != nil {
			t.Fatal(err)
		}
		h := map[string][]string{}
		grants["anthropic"].inject(h, grants["anthropic"].key.Load())
		if len(h) != 1 || len(h[c.header]) != 1 || h[c.header][0] != c.want {
			t.Errorf("%q: %v", c.env, h)
		}
	}
}

func TestTTL(t *testing.T) {
	s := newStage(t, nil)
	for ttl, want := range map[time.Duration]time.Duration{0: MaxTTL, time.Minute: time.Minute, MaxTTL: MaxTTL} {
		issued, err := s.Issue(Turn{Box: "b1", Engine: "none", Keys: testKeys("https://up.example"), TTL: ttl})
		if err != nil || issued.Expires.Sub(s.clock) != want {
			t.Errorf("ttl %v: expires after %v, %v", ttl, issued.Expires.Sub(s.clock), err)
		}
	}
}
