package broker

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// crashed opens a copy of the store's file as it is at this moment, which is
// what a worker finds when this one is killed now.
func crashed(t *testing.T, dir string) []Record {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "broker.db"))
	if err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := os.WriteFile(filepath.Join(copied, "broker.db"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	records, _, err := openStore(t, copied).Recover([32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// What was settled is neither lost nor alive again when the worker is killed.
func TestWhatIsSettledOutlivesAKill(t *testing.T) {
	dir := t.TempDir()
	s := newStage(t, openStore(t, dir))
	s.Settle() // nothing to wait for
	for i := range 20 {
		s.issue("b", "http://127.0.0.1:1")
		s.Settle()
		if n := len(crashed(t, dir)); n != 1 {
			t.Fatalf("round %d: %d grants are found", i, n)
		}
		s.Revoke("b")
		s.Settle()
		if n := len(crashed(t, dir)); n != 0 {
			t.Fatalf("round %d: %d grants are alive again", i, n)
		}
	}
}

func TestAStolenTokenStaysDead(t *testing.T) {
	dir := t.TempDir()
	s := newStage(t, openStore(t, dir))
	token, _ := s.issue("b1", "http://127.0.0.1:1")
	s.Settle()
	thief := s.serve("b2")
	send(t, thief, "POST", "/b/"+token+"/anthropic/v1/messages", http.Header{}, "{}")
	if n := len(crashed(t, dir)); n != 0 {
		t.Errorf("%d grants are alive again", n)
	}
}

// A worker that takes a grant over goes on counting where the last one was.
func TestWhatWasUsedIsCarriedOver(t *testing.T) {
	up := newUpstream(t)
	for name, limits := range map[string]Limits{"bytes": {Bytes: 40}, "tokens": {Tokens: 40}} {
		s := newStage(t, nil)
		token := s.issueLimited("b", up.URL, limits)
		s.issueLimited("free", up.URL, Limits{PerMinute: 5})
		if used := s.Used("free"); len(used) != 0 {
			t.Errorf("%s: a box without these limits has used %v", name, used)
		}
		for _, m := range s.metered("b") {
			m.pass(30)
			m.spend(30)
		}
		used := s.Used("b")
		if len(used) != 3 || used["anthropic"] != (Used{30, 30}) {
			t.Errorf("%s: %v", name, used)
		}
		next := newStage(t, nil)
		token = next.issueLimited("b", up.URL, limits)
		addr := next.serve("b")
		ask := func() int {
			return send(t, addr, "POST", "/b/"+token+"/anthropic/v1/messages", http.Header{}, "{}").status
		}
		next.Spend("b", used)
		if status := ask(); status != 200 {
			t.Errorf("%s: %d with something left", name, status)
		}
		next.Spend("b", map[string]Used{"anthropic": {10, 10}, "nobody": {1, 1}})
		if status := ask(); status != 429 {
			t.Errorf("%s: %d with nothing left", name, status)
		}
	}
}
