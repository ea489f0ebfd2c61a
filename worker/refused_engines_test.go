package main

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/provider"
	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/engine"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// ends are the ways in which a token is no good, beside the one in which it is.
var ends = []struct {
	name string
	do   func(b *broker.Broker, token string)
	code string // of the refusals
}{
	{"good", func(*broker.Broker, string) {}, ""},
	{"revoked", func(b *broker.Broker, _ string) { b.Revoke("box") }, "token_revoked"},
}

// refusedWithin is how long an engine may go on after the broker's refusal. Its
// own start is not in it: on a busy machine that alone takes seconds.
const refusedWithin = 2 * time.Second

// A dead token ends an engine's turn at once, after one model request: each
// engine is told in the shape and with the status at which it asks no second
// time. The engines run beside the broker itself, at the address that it has in
// a box, so that every request is an event.
func TestDeadTokenEndsTheTurn(t *testing.T) {
	installEngines(t, agentNames()...)
	if !gatetest.Inside(t) {
		return
	}
	for _, a := range agents {
		for _, end := range ends {
			t.Run(a.name+"/"+end.name, func(t *testing.T) {
				codes, took, out := refusedTurn(t, a, end.do)
				t.Logf("%q, then %v until it ended with %d: %.300s", codes, took, out.Code, out.Stdout+out.Stderr)
				if end.code == "" { // the control
					if out.Code != 0 || len(codes) == 0 || slices.ContainsFunc(codes, func(c string) bool { return c != "" }) {
						t.Errorf("with a good token: %q, %+v", codes, out)
					}
					return
				}
				if !slices.Equal(codes, []string{end.code}) {
					t.Errorf("the broker answered %q, want %s once", codes, end.code)
				}
				if took > refusedWithin {
					t.Errorf("the turn went on for %v after the refusal", took)
				}
				if strings.Contains(out.Stdout+out.Stderr, "omb_t0_") {
					t.Errorf("the engine printed the token: %+v", out)
				}
			})
		}
	}
}

// refusedTurn runs an engine against a broker with a token that end was done
// to. It gives the codes of the broker's answers and the time from the first
// of them to the engine's end.
func refusedTurn(t *testing.T, a agent, end func(*broker.Broker, string)) (codes []string, took time.Duration, out rig.Output) {
	model := provider.New(provider.Options{Key: keyHalfA + keyHalfB, Reply: "The turn is complete."})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveUntilEnd(t, l, model)
	var mu sync.Mutex
	var first time.Time
	b, err := broker.New(broker.Options{BootKey: [32]byte{1}, Log: func(e broker.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind != broker.Requesting || e.Method != "POST" {
			return
		}
		if len(codes) == 0 {
			first = time.Now()
		}
		codes = append(codes, e.Code)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	here, err := net.Listen("tcp", "127.0.0.1:18080")
	if err != nil {
		t.Fatal(err)
	}
	go b.Serve(here, "box")

	env := map[string]secret.Text{a.key: secret.New(keyHalfA + keyHalfB), a.base: secret.New("http://" + l.Addr().String() + a.version)}
	keys, _, err := broker.Take(env, a.name)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := b.Issue(broker.Turn{Box: "box", Engine: a.name, Keys: keys, Alone: true})
	if err != nil {
		t.Fatal(err)
	}
	end(b, issued.Env[a.key])
	p := newPlace(t)
	for name, content := range issued.Files {
		rig.Write(t, filepath.Join(p.home, name), content)
		for dir := filepath.Dir(filepath.Join(p.home, name)); dir != p.home; dir = filepath.Dir(dir) {
			rig.Give(t, dir)
		}
	}
	_, bin := install(t, a.name)
	_, node := install(t, "node")
	argv := append([]string{bin}, a.words...)
	n := engine.Words(argv)
	cmd := rig.Command(t, p.work, rig.Env(t, p.home, append([]string{nodeFirst(node)}, a.env...)...), slices.Concat(argv[:n], issued.Argv, argv[n:])...)
	for name, value := range issued.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	for name, value := range issued.Quiet {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out = rig.Run(t, cmd)
	ended := time.Now()
	mu.Lock()
	defer mu.Unlock()
	if len(codes) > 0 {
		took = ended.Sub(first)
	}
	return slices.Clone(codes), took, out
}
