package broker

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/worker/internal/secret"
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

// What is sealed for a box is nothing to another one, and nothing after the
// boot.
func TestWhatIsSealedForABox(t *testing.T) {
	open := func(boot byte) *Broker {
		b, err := New(Options{BootKey: [32]byte{boot}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	sealed := open(1).Seal("b1", []byte("canary"))
	if strings.Contains(string(sealed), "canary") {
		t.Error("it is in the clear")
	}
	if plain, err := open(1).Unseal("b1", sealed); err != nil || string(plain) != "canary" { // the next worker of this boot
		t.Errorf("%q, %v", plain, err)
	}
	flipped := bytes.Clone(sealed)
	flipped[len(flipped)-1] ^= 1
	for name, err := range map[string]error{
		"another boot": second(open(2).Unseal("b1", sealed)), "another box": second(open(1).Unseal("b2", sealed)),
		"changed": second(open(1).Unseal("b1", flipped)), "nothing": second(open(1).Unseal("b1", nil)),
	} {
		if err == nil {
			t.Errorf("%s: unsealed", name)
		}
	}
}

func second(_ []byte, err error) error { return err }

// The grants of declared hosts that were adopted reach their host by the gate
// of the box that was taken back, and not before.
func TestAdoptedHostsAreReachedAgain(t *testing.T) {
	dir := t.TempDir()
	s := newStage(t, openStore(t, dir))
	if _, err := s.Issue(Turn{Box: "b", Engine: "none", Keys: HostKeys("XAI_API_KEY", secret.New(hostKeyText), []string{vendorHost}, nil)}); err != nil {
		t.Fatal(err)
	}
	s.Settle()
	next := newStage(t, nil)
	next.transport = nil
	if n := next.Adopt(crashed(t, dir)); n != 1 {
		t.Fatalf("%d grants adopted", n)
	}
	_, g := next.hostGrant("b", whole+vendorHost)
	dial := func() error {
		_, err := g.transport.(*http.Transport).DialContext(context.Background(), "tcp", vendorHost+":443")
		return err
	}
	if err := dial(); !errors.Is(err, errNoDial) {
		t.Errorf("before: %v", err)
	}
	errAsked := errors.New("asked")
	next.Reach("another", func(context.Context, string) (net.Conn, error) { return nil, errors.New("the wrong box") })
	next.Reach("b", func(_ context.Context, host string) (net.Conn, error) { return nil, errAsked })
	if err := dial(); !errors.Is(err, errAsked) {
		t.Errorf("after: %v", err)
	}
}
