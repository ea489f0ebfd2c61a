package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/provider"
	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// vendorHosts are the real names of the hosts that sign-ins are sent to. In the
// test's namespaces they are its own: no setting moves them, so that none has to
// be there in production.
var vendorHosts = []string{"api.anthropic.com", "platform.claude.com", "chatgpt.com", "auth.openai.com"}

// subscription is the issuer and the vendor of a sign-in.
type subscription struct {
	model *provider.Server
	key   string // what model takes in place of the access token
	own   func(h http.Header, access string)

	mu      sync.Mutex
	access  string // the one that is good
	refresh string
	n       int
	seen    []http.Header
	ended   bool
}

// newTokens makes the next pair; its halves are the canary of the sweep.
func (s *subscription) newTokens() {
	s.n++
	s.refresh = fmt.Sprint(keyHalfA, keyHalfB, "-refresh-", s.n)
	s.access = token(s.n, time.Now().Add(time.Hour))
}

// token is a JWT, which Codex's are; Claude Code's may be anything.
func token(n int, exp time.Time) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"none"}`)) + "." + part(fmt.Appendf(nil, `{"exp":%d}`, exp.Unix())) + "." + fmt.Sprint(keyHalfA, keyHalfB, n)
}

func (s *subscription) issue(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var q map[string]string
	b, _ := io.ReadAll(r.Body)
	if json.Unmarshal(b, &q) != nil || r.Method != "POST" || q["refresh_token"] != s.refresh || s.ended {
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"error":"invalid_grant"}`)
		return
	}
	s.newTokens()
	fmt.Fprintf(w, `{"access_token":%q,"refresh_token":%q,"expires_in":3600}`, s.access, s.refresh)
}

func (s *subscription) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.Header.Clone())
	good := r.Header.Get("Authorization") == "Bearer "+s.access
	s.mu.Unlock()
	if !good {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"type":"error","error":{"type":"authentication_error","message":"not the token of the moment"}}`)
		return
	}
	s.own(r.Header, s.key)
	s.model.ServeHTTP(w, r)
}

// Real engines with a subscription, and nothing of it in their boxes: each does
// a turn with a tool call, after the token outside was renewed.
func TestASubscriptionStaysOutside(t *testing.T) {
	needsRoot(t)
	for _, name := range []string{"claude", "codex"} {
		if variable := "BOTBOX_TEST_" + name; os.Getenv(variable) == "" {
			_, bin := install(t, name) // before there is no network
			t.Setenv(variable, bin)
		}
	}
	if !gatetest.Inside(t) {
		return
	}
	w := newWeb(t)
	hosts := "127.0.0.1 localhost\n"
	for _, name := range vendorHosts {
		hosts += gatetest.Far4 + " " + name + "\n"
	}
	w.instead("/etc/hosts", hosts)
	root := filepath.Join(w.public, "root.pem")
	sweeper := filepath.Join(w.public, "sweeper")
	if err := rig.Compile(sweeper, "./testbed/sweeper", "rig"); err != nil {
		t.Fatal(err)
	}
	sweep := fmt.Sprintf("%s %s %s /etc /run /tmp /dev/shm %s; echo the tool ran", sweeper, keyHalfA, keyHalfB, w.home)
	w.serve("SSL_CERT_FILE="+root, "OMB_LOG=text")

	claude := newSubscription(sweep, func(h http.Header, key string) {
		h.Del("Authorization")
		h.Set("X-Api-Key", key)
	})
	w.net.Handle("api.anthropic.com", http.HandlerFunc(claude.serve))
	w.net.Handle("platform.claude.com", http.HandlerFunc(claude.issue))
	codex := newSubscription(sweep, func(h http.Header, key string) { h.Set("Authorization", "Bearer "+key) })
	w.net.Handle("chatgpt.com", http.HandlerFunc(codex.serve))
	w.net.Handle("auth.openai.com", http.HandlerFunc(codex.issue))

	for _, c := range []struct {
		name, file string
		args       []string
		sub        *subscription
		content    func(access, refresh string, expires time.Time) string
		header     string // that must come beside the token
		value      string
	}{
		{"claude", ".claude/.credentials.json", []string{"-p", "hello", "--dangerously-skip-permissions"}, claude, func(access, refresh string, expires time.Time) string {
			return fmt.Sprintf(`{"claudeAiOauth":{"accessToken":%q,"refreshToken":%q,"expiresAt":%d,"scopes":["user:inference"],"subscriptionType":"max"}}`, access, refresh, expires.UnixMilli())
		}, "Anthropic-Beta", "oauth-2025-04-20"},
		{"codex", ".codex/auth.json", []string{"exec", "-m", "gpt-5", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "hello"}, codex, func(_, refresh string, expires time.Time) string {
			return fmt.Sprintf(`{"OPENAI_API_KEY":null,"tokens":{"id_token":"x","access_token":%q,"refresh_token":%q,"account_id":"acc-1"},"last_refresh":"2026-01-01T00:00:00Z"}`, token(0, expires), refresh)
		}, "Chatgpt-Account-Id", "acc-1"},
	} {
		bin := os.Getenv("BOTBOX_TEST_" + c.name)
		engineDir, _, _ := strings.Cut(bin, "/node_modules/")
		file := filepath.Join(w.home, c.file)
		run := func() rig.Output {
			return rig.Run(t, w.botbox(nil, append([]string{"run", "--json", "--engine", c.name, "--broker-login", "--ro", engineDir, "--ro", w.public, "--", bin}, c.args...)...))
		}
		if out := run(); out.Code != 100 || !strings.Contains(out.Stderr, "sign in outside of a box first") {
			t.Errorf("%s without a sign-in: %+v", c.name, out)
		}
		rig.Write(t, file, c.content(c.sub.access, c.sub.refresh, time.Now().Add(time.Minute)))
		rig.Give(t, filepath.Dir(file))
		os.Chmod(file, 0o600)
		out := run()
		if out.Code != 0 || !strings.Contains(out.Stdout, "The turn is complete.") {
			t.Fatalf("%s: the turn did not complete: %+v", c.name, out)
		}
		requests := c.sub.model.Requests()
		last := requests[len(requests)-1].Body
		if len(requests) < 2 || !strings.Contains(last, "the tool ran") || !strings.Contains(last, "swept") || strings.Contains(last, "found in") {
			t.Errorf("%s: the sweep in the box: %d requests, %s", c.name, len(requests), last)
		}
		for _, h := range c.sub.seen {
			if strings.Contains(fmt.Sprint(h), "omb_") || !strings.Contains(h.Get(c.header), c.value) || len(h["Authorization"]) != 1 {
				t.Errorf("%s: %v", c.name, h)
			}
		}
		now, _ := os.ReadFile(file)
		info, _ := os.Stat(file)
		if c.sub.n != 2 || !strings.Contains(string(now), c.sub.refresh) || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: renewed %d times, the file: %s %v", c.name, c.sub.n-1, now, info.Mode())
		}
		// The sign-in is revoked: the turn ends, and says so.
		c.sub.mu.Lock()
		c.sub.ended = true
		before := len(c.sub.seen)
		c.sub.mu.Unlock()
		rig.Write(t, file, c.content("x", "revoked", time.Now().Add(-time.Hour)))
		began := time.Now()
		if out := run(); out.Code == 0 || !strings.Contains(out.Stdout+out.Stderr, "sign-in outside of the box has ended") || len(c.sub.seen) != before {
			t.Errorf("%s, revoked: %+v; %d requests arrived", c.name, out, len(c.sub.seen)-before)
		}
		t.Logf("%s: a turn with a revoked sign-in ended after %v", c.name, time.Since(began))
	}
	// A long-lived token in a variable that no base URL goes with: by its host.
	bin := os.Getenv("BOTBOX_TEST_claude")
	engineDir, _, _ := strings.Cut(bin, "/node_modules/")
	before := len(claude.seen)
	out := rig.Run(t, w.botbox([]string{"CLAUDE_CODE_OAUTH_TOKEN=" + claude.access}, "run", "--json", "--engine", "claude", "--broker-host", "CLAUDE_CODE_OAUTH_TOKEN=api.anthropic.com",
		"--ro", engineDir, "--ro", w.public, "--home", "private", "--", "sh", "-c", "rm -rf ~/.claude/.credentials.json; exec "+bin+" -p hello --dangerously-skip-permissions"))
	requests := claude.model.Requests()
	if last := requests[len(requests)-1].Body; out.Code != 0 || !strings.Contains(out.Stdout, "The turn is complete.") || len(claude.seen) < before+2 ||
		!strings.Contains(last, "swept") || strings.Contains(last, "found in") || !strings.Contains(out.Stderr, `"unbrokered":[]`) {
		t.Errorf("by its host: %+v; %d requests, %s", out, len(claude.seen)-before, last)
	}
	for _, h := range claude.seen[before:] {
		if strings.Contains(fmt.Sprint(h), "omb_") {
			t.Errorf("by its host: %v", h)
		}
	}
	// The control of the sweep: the same file, where its folder is let in.
	rig.Write(t, filepath.Join(w.home, ".claude/.credentials.json"), `{"x":"`+keyHalfA+keyHalfB+`"}`)
	out = rig.Run(t, w.botbox(nil, "run", "--engine", "claude", "--ro", w.public, "--", "sh", "-c", sweep))
	if !strings.Contains(out.Stdout, "found in") {
		t.Errorf("control: %+v", out)
	}
}

func newSubscription(sweep string, own func(http.Header, string)) *subscription {
	s := &subscription{key: "stand-in-key", own: own}
	s.model = provider.New(provider.Options{Key: s.key, Tool: sweep, Reply: "The turn is complete."})
	s.newTokens()
	return s
}
