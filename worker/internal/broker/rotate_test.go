package broker

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// vault is what Rotate reads.
type vault map[string]string

func (s vault) read(ref string) (secret.Text, error) {
	text, ok := s[ref]
	if !ok {
		return secret.Text{}, errors.New("there is no secret " + ref)
	}
	return secret.New(text), nil
}

func (s *stage) issueRefs(box, upstream string, refs map[string]string) string {
	s.t.Helper()
	issued, err := s.Issue(Turn{Box: box, Engine: "none", Keys: testKeys(upstream), Refs: refs})
	if err != nil {
		s.t.Fatal(err)
	}
	return issued.Env["ANTHROPIC_API_KEY"]
}

func TestRotationRepointsLivingGrants(t *testing.T) {
	up, dir := newUpstream(t), t.TempDir()
	store := openStore(t, dir)
	s := newStage(t, store)
	addr, other := s.serve("b1"), s.serve("b2")
	refs := map[string]string{"ANTHROPIC_API_KEY": "claude", "OPENAI_API_KEY": "gpt", "NOTES_TOKEN": "no key of the broker's"}
	token := s.issueRefs("b1", up.URL, refs)
	plain, _ := s.issue("b2", up.URL) // its keys came as values
	s.issueRefs("b3", up.URL, refs)
	s.Revoke("b3")
	ask := func(addr, token, grant string) string {
		t.Helper()
		path := map[string]string{"anthropic": "/v1/messages", "openai": "/responses", "gemini": "/v1/models/m:x"}[grant]
		if got := send(t, addr, "POST", "/b/"+token+"/"+grant+path, nil, "{}"); got.status != 200 {
			t.Fatalf("%s: %d %s", grant, got.status, got.body)
		}
		h := up.last(t).Header
		return h.Get("X-Api-Key") + strings.TrimPrefix(h.Get("Authorization"), "Bearer ") + h.Get("X-Goog-Api-Key")
	}
	// A request that is under way ends with the key that it began with.
	held := make(chan bool)
	up.then = func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-held
		io.WriteString(w, "late "+r.Header.Get("X-Api-Key"))
	}
	under, err := http.Post("http://"+addr+"/b/"+token+"/anthropic/v1/messages", "", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	up.mu.Lock()
	up.then = nil
	up.mu.Unlock()
	// Nothing changes when one of them cannot be had.
	if _, err := s.Rotate(vault{"claude": "new-claude-key"}.read, ""); err == nil {
		t.Error("rotated with a secret missing")
	}
	if _, err := s.Rotate(vault{"claude": "new-claude-key", "gpt": "two words"}.read, ""); err == nil || reason.Of(err).Code != reason.BadSpec {
		t.Errorf("rotated to something that is no key: %v", err)
	}
	if key := ask(addr, token, "anthropic"); key != anthropicKey {
		t.Errorf("after failed rotations: %s", key)
	}
	begin := time.Now()
	done, err := s.Rotate(vault{"claude": "new-claude-key", "gpt": openaiKey}.read, "")
	t.Logf("took %v", time.Since(begin))
	if err != nil || done.Grants != 1 || done.Boxes != 1 || strings.Join(done.Refs, " ") != "claude gpt" {
		t.Errorf("%+v, %v", done, err)
	}
	for grant, want := range map[string]string{"anthropic": "new-claude-key", "openai": openaiKey, "gemini": geminiKey} {
		if key := ask(addr, token, grant); key != want {
			t.Errorf("%s: the upstream saw %s", grant, key)
		}
	}
	if key := ask(other, plain, "anthropic"); key != anthropicKey {
		t.Errorf("the other box's: %s", key)
	}
	close(held)
	late, err := io.ReadAll(under.Body)
	if err != nil || !strings.HasPrefix(string(late), "late omb_redacted") {
		t.Errorf("the request that was under way: %q, %v", late, err)
	}
	// The former key is still hidden: the upstream may remember it.
	up.mu.Lock()
	up.then = func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "before: "+anthropicKey) }
	up.mu.Unlock()
	if got := send(t, addr, "POST", "/b/"+token+"/anthropic/v1/messages", nil, "{}"); strings.Contains(got.body, anthropicKey) {
		t.Errorf("the former key came back: %s", got.body)
	}
	// One secret by its name.
	done, err = s.Rotate(vault{"gpt": "new-openai-key"}.read, "gpt")
	if err != nil || done.Grants != 1 || strings.Join(done.Refs, " ") != "gpt" {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := s.Rotate(vault{}.read, "other"); err == nil || reason.Of(err).Code != reason.NoSuchSecret {
		t.Errorf("a name that nobody uses: %v", err)
	}
	if n := s.kinds()[Rotating]; n != 2 {
		t.Errorf("%d events, want 2", n)
	}
	// A later worker goes on with the new keys, and can rotate them again.
	s.Broker.Close()
	closeStore(t, store)
	store = openStore(t, dir)
	records, _, err := store.Recover([32]byte{1})
	if err != nil || len(records) != 2 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	next := newStage(t, store)
	next.Adopt(records)
	up.mu.Lock()
	up.then = nil
	up.mu.Unlock()
	addr = next.serve("b1")
	if key := ask(addr, token, "openai"); key != "new-openai-key" {
		t.Errorf("the next worker sends %s", key)
	}
	if done, err := next.Rotate(vault{"claude": "newest-key", "gpt": "new-openai-key"}.read, ""); err != nil || done.Grants != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	if key := ask(addr, token, "anthropic"); key != "newest-key" {
		t.Errorf("the next worker's rotation: %s", key)
	}
}

// Rotating and revoking at the same time leaves no record of a dead token.
func TestARotationDoesNotBringATokenBack(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir)
	s := newStage(t, store)
	for i := range 50 {
		s.issueRefs("b1", "https://up.example", map[string]string{"OPENAI_API_KEY": "gpt"})
		done := make(chan bool)
		go func() {
			s.Rotate(vault{"gpt": "key-number-" + string(rune('a'+i%26))}.read, "")
			close(done)
		}()
		s.Revoke("b1")
		<-done
	}
	s.Broker.Close()
	closeStore(t, store)
	store = openStore(t, dir)
	if records, dropped, err := store.Recover([32]byte{1}); err != nil || len(records)+dropped != 0 {
		t.Errorf("%d records, %d dropped, %v", len(records), dropped, err)
	}
}
