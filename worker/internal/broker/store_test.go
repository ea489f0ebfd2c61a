package broker

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := OpenStore(filepath.Join(dir, "broker.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func closeStore(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestANewWorkerGoesOnServing(t *testing.T) {
	up, dir := newUpstream(t), t.TempDir()
	store := openStore(t, dir)
	s := newStage(t, store)
	token, issued := s.issue("b1", up.URL)
	gone, _ := s.issue("b2", up.URL)
	s.Revoke("b2")
	s.Broker.Close()
	closeStore(t, store)

	store = openStore(t, dir)
	records, dropped, err := store.Recover([32]byte{1})
	if err != nil || dropped != 0 || len(records) != 1 {
		t.Fatalf("%d records, %d dropped, %v", len(records), dropped, err)
	}
	r := records[0]
	if r.Box != "b1" || r.Bot != "bot" || r.Conversation != "talk" || !r.Expires.Equal(issued.Expires) || len(r.Keys) != 3 {
		t.Errorf("record %+v", r)
	}
	next := newStage(t, store)
	if n := next.Adopt(records); n != 1 {
		t.Errorf("%d adopted", n)
	}
	a1, a2 := next.serve("b1"), next.serve("b2")
	for grant, path := range map[string]string{"anthropic": "/v1/messages", "openai": "/responses", "gemini": "/v1/models/m:x"} {
		if got := send(t, a1, "POST", "/b/"+token+"/"+grant+path, nil, "{}"); got.status != 200 {
			t.Errorf("%s: %d %s", grant, got.status, got.body)
		}
		if len(leaks(up.last(t).Header)) != 1 {
			t.Errorf("%s: upstream saw %v", grant, up.last(t).Header)
		}
	}
	// The record was deleted with the token, so the new worker knows nothing of
	// the box: nothing to go out with, and it says why.
	before := len(up.requests())
	for path, want := range map[string]int{"/openai/responses": 400, "/anthropic/v1/messages": 503} {
		got := send(t, a2, "POST", "/b/"+gone+path, nil, "{}")
		if got.status != want || !strings.Contains(got.body, "no grants for this box") || got.header.Get("X-Should-Retry") != "false" {
			t.Errorf("the revoked token: %d %s", got.status, got.body)
		}
	}
	if len(up.requests()) != before {
		t.Error("a request without a grant went out")
	}
	if next.Revoke("b1") != 1 {
		t.Error("the adopted token was not revoked")
	}
}

func TestAdoptRefusesWhatIsOver(t *testing.T) {
	s := newStage(t, nil)
	good := Record{Digest: [32]byte{1}, Box: "b", Expires: s.clock.Add(time.Hour), Keys: testKeys("https://up.example")}
	over, long, odd := good, good, good
	over.Digest, over.Expires = [32]byte{2}, s.clock
	long.Digest, long.Expires = [32]byte{3}, s.clock.Add(MaxTTL+time.Second)
	odd.Digest, odd.Keys = [32]byte{4}, []Key{{Provider: "acme", EnvName: "A", Secret: secret.New("k"), Upstream: "https://up.example"}}
	if n := s.Adopt([]Record{over, good, long, odd}); n != 1 || s.tokens[good.Digest] == nil {
		t.Errorf("%d adopted", n)
	}
}

func TestAnotherBootKeyOpensNothing(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir)
	s := newStage(t, store)
	s.issue("b1", "https://up.example")
	s.issue("b2", "https://up.example")
	s.Broker.Close()
	closeStore(t, store)
	store = openStore(t, dir)
	if records, dropped, err := store.Recover([32]byte{2}); err != nil || len(records) != 0 || dropped != 2 {
		t.Errorf("%d records, %d dropped, %v", len(records), dropped, err)
	}
	if records, dropped, err := store.Recover([32]byte{1}); err != nil || len(records)+dropped != 0 {
		t.Errorf("after the drop: %d records, %d dropped, %v", len(records), dropped, err)
	}
}

// A box whose grants were lost holds a token that nobody knows: it hears so,
// and neither the token nor the request reaches a vendor (sbx 196, OpenShell
// 2161).
func TestALostTableSendsNothing(t *testing.T) {
	up, dir := newUpstream(t), t.TempDir()
	store := openStore(t, dir)
	before := newStage(t, store)
	token, _ := before.issue("b1", up.URL)
	target := "/b/" + token + "/anthropic/v1/messages"
	if got := send(t, before.serve("b1"), "POST", target, nil, "{}"); got.status != 200 || len(up.requests()) != 1 {
		t.Fatalf("control: %d, %d requests", got.status, len(up.requests()))
	}
	before.Broker.Close()
	closeStore(t, store)
	store = openStore(t, dir)
	if _, dropped, err := store.Recover([32]byte{2}); err != nil || dropped != 1 {
		t.Fatalf("%d dropped, %v", dropped, err)
	}
	after := newStage(t, store)
	got := send(t, after.serve("b1"), "POST", target, nil, "{}")
	if got.status != 503 || got.header.Get("X-Should-Retry") != "false" || !strings.Contains(got.body, "no grants for this box") {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
	if n := len(up.requests()); n != 1 || len(after.dials) != 0 {
		t.Errorf("the upstream saw %d requests, %v was dialled", n, after.dials)
	}
}

func TestASealedRecordCannotMove(t *testing.T) {
	sealer, err := newSealer([32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	d := digest{7}
	plain, err := Record{Digest: d, Box: "b"}.encode()
	if err != nil {
		t.Fatal(err)
	}
	sealed := sealer.seal(d, plain)
	if r, err := sealer.record(d[:], sealed); err != nil || r.Box != "b" {
		t.Fatalf("control: %+v, %v", r, err)
	}
	if _, err := sealer.record(make([]byte, 32), sealed); err == nil {
		t.Error("opened in another's place")
	}
	sealed[len(sealed)-1] ^= 1
	if _, err := sealer.record(d[:], sealed); err == nil {
		t.Error("opened although changed")
	}
}

func TestTheFileHoldsNoKeyAndNoToken(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir)
	s := newStage(t, store)
	token, _ := s.issue("b1", "https://up.example")
	revoked, _ := s.issue("b2", "https://up.example")
	store.flush()
	s.Revoke("b2")
	s.Broker.Close()
	store.Add("positive-control-name", 1)
	closeStore(t, store)
	data, err := os.ReadFile(filepath.Join(dir, "broker.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{anthropicKey, openaiKey, geminiKey, token, revoked, token[len(tokenPrefix):], "up.example"} {
		if bytes.Contains(data, []byte(bad)) {
			t.Errorf("the file holds %q", bad)
		}
	}
	d := s.Broker.digest(token)
	if !bytes.Contains(data, []byte("positive-control-name")) || !bytes.Contains(data, d[:]) {
		t.Error("control: the scan finds nothing at all")
	}
}

func TestCountersOutliveTheWorker(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir)
	store.Add("a", 2)
	store.Add("a", 3)
	store.Add("b", 1)
	closeStore(t, store)
	store = openStore(t, dir)
	store.Add("a", 1)
	if c := store.Counters(); c["a"] != 6 || c["b"] != 1 || len(c) != 2 {
		t.Errorf("%v", c)
	}
}

func TestARevocationReplacesItsRecord(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir)
	for i := range 200 {
		d := digest{byte(i)}
		store.put(d, []byte("sealed"))
		if i != 7 {
			store.put(d, nil)
		}
	}
	closeStore(t, store)
	store = openStore(t, dir)
	if _, dropped, err := store.Recover([32]byte{1}); err != nil || dropped != 1 {
		t.Errorf("%d records were left, %v", dropped, err)
	}
}

func TestOpenStoreRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "broker.db")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	check := func(what, path string, want reason.Code) {
		t.Helper()
		s, err := OpenStore(path)
		if err == nil {
			s.Close()
			t.Errorf("%s: opened", what)
		} else if reason.Of(err).Code != want {
			t.Errorf("%s: %s: %v", what, reason.Of(err).Code, err)
		}
	}
	check("open folder", path, reason.NotYours)
	check("no folder", filepath.Join(dir, "x", "broker.db"), reason.System)
	store := openStore(t, dir) // control; sets 0700
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	check("second worker", path, reason.StoreLocked)
	closeStore(t, store)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	check("open file", path, reason.NotYours)
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	check("link", link, reason.NotYours)
	junk := filepath.Join(dir, "junk.db")
	if err := os.WriteFile(junk, bytes.Repeat([]byte("junk"), 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	check("junk", junk, reason.System)
	if l, err := net.Listen("unix", filepath.Join(dir, "s.db")); err == nil {
		defer l.Close()
		check("socket", filepath.Join(dir, "s.db"), reason.NotYours)
	}
}
