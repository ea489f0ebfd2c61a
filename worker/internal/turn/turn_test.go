package turn

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/secret"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// newRunner makes a runner that can prepare boxes and starts none.
func newRunner(t *testing.T) (r *Runner, counted func(string) int) {
	t.Helper()
	b, err := broker.New(broker.Options{BootKey: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	entry, err := os.Open("/bin/true") // never run
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { entry.Close() })
	home := t.TempDir()
	var mu sync.Mutex
	counts := map[string]int{}
	return &Runner{
			Path: os.Getenv("PATH"), Entry: box.Program{File: entry}, Machine: box.LookAt("maus", home, home+"/.openmausbot"),
			Ports: DefaultPorts(8799), Broker: b, Harness: "tcp:127.0.0.1:8799", Log: slog.New(slog.DiscardHandler),
			Secrets: func(name string) (secret.Text, error) {
				if name != "anthropic" {
					return secret.Text{}, reason.New(reason.BadSpec, "there is no secret %q", name)
				}
				return secret.New("sk-canary"), nil
			},
			Count: func(name string) { mu.Lock(); counts[name]++; mu.Unlock() },
		}, func(name string) int {
			mu.Lock()
			defer mu.Unlock()
			return counts[name]
		}
}

// plain is a spec as Decode leaves it.
func plain(t *testing.T) spec.Spec {
	t.Helper()
	work, err := os.MkdirTemp("/var/tmp", "b") // no part of HOME, and none of /tmp itself
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(work) })
	s, err := spec.Decode([]byte(`{"argv":["claude","-p","hi"],"engine":"claude","cwd":"` + work + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAdmit(t *testing.T) {
	r, _ := newRunner(t)
	first := &Turn{}
	if err := r.admit(first, "box_mine"); err != nil || first.ID != "box_mine" {
		t.Errorf("%v, %q", err, first.ID)
	}
	if err := r.admit(&Turn{}, "box_mine"); reason.Of(err).Code != reason.BadSpec {
		t.Errorf("a second box of that name: %v", err)
	}
	names := map[string]bool{"box_mine": true}
	for range Limit - 1 {
		next := &Turn{}
		if err := r.admit(next, ""); err != nil {
			t.Fatal(err)
		}
		names[next.ID] = true
	}
	if len(names) != Limit || len(r.Running()) != Limit {
		t.Errorf("%d names, %d boxes, want %d", len(names), len(r.Running()), Limit)
	}
	if err := r.admit(&Turn{}, ""); reason.Of(err).Code != reason.TooManyBoxes {
		t.Errorf("one too many: %v", err)
	}
	r.forget(first)
	if err := r.admit(&Turn{}, "box_mine"); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	if _, err := r.Find("box_other"); reason.Of(err).Code != reason.NoSuchBox {
		t.Errorf("a box that is not there: %v", err)
	}
}

func TestNoBoxAfterADrain(t *testing.T) {
	r, _ := newRunner(t)
	r.Drain(time.Millisecond) // nothing to wait for
	if _, _, err := r.Prepare(plain(t), Way{First: box.LeaseFD}); reason.Of(err).Code != reason.WorkerStopping {
		t.Errorf("%v", err)
	}
}

// A drain that cannot end a box returns when the time is over.
func TestADrainEndsInTime(t *testing.T) {
	r, _ := newRunner(t)
	stuck := &Turn{runner: r, ready: make(chan struct{}), ended: make(chan struct{})}
	if err := r.admit(stuck, ""); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { r.Drain(20 * time.Millisecond); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("it still waits")
	}
	close(stuck.ended)
}

// A kit is made without a process, and given up without a trace.
func TestPrepareAndAbandon(t *testing.T) {
	r, counted := newRunner(t)
	s := plain(t)
	s.Env = map[string]spec.Value{
		"ANTHROPIC_API_KEY": {Ref: "anthropic"}, "OMB_CLOUD_ROLE": {Text: secret.New("home")}, "TERM": {Text: secret.New("dumb")},
		"GROQ_API_KEY": {Text: secret.New("raw")},
	}
	before := openFiles(t)
	turn, answer, err := r.Prepare(s, Way{First: box.LeaseFD})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(answer.DroppedEnv, "OMB_CLOUD_ROLE") || !slices.Contains(answer.EnvNames, "TERM") || len(answer.Grants) != 1 || answer.ID != turn.ID {
		t.Errorf("%+v", answer)
	}
	for _, word := range append(turn.Kit.Options, turn.Kit.Argv...) {
		if strings.Contains(word, "sk-canary") {
			t.Errorf("the key is on its way into the box: %s", word)
		}
	}
	if found, err := r.Find(turn.ID); err != nil || found != turn || turn.Pid() != 0 {
		t.Errorf("%v", err)
	}
	if err := turn.Signal(syscall.SIGTERM); reason.Of(err).Code != reason.NoSuchBox {
		t.Errorf("a signal before there is anybody: %v", err)
	}
	turn.Abandon()
	turn.Kill() // returns: it has ended
	if after := openFiles(t); len(r.Running()) != 0 || after != before {
		t.Errorf("%d boxes, %d files, %d before", len(r.Running()), after, before)
	}
	if counted("boxed") != 0 || counted("refused") != 0 {
		t.Errorf("counted: %d boxed, %d refused", counted("boxed"), counted("refused"))
	}
}

// Whatever is wrong, there is no box, no file, no grant and no name left, and
// it is counted once.
func TestPrepareRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Runner, *spec.Spec)
		code   reason.Code
	}{
		"another data folder": {func(_ *Runner, s *spec.Spec) { s.DataDir = "/srv/other" }, reason.BadSpec},
		"unknown secret":      {func(_ *Runner, s *spec.Spec) { s.Env = map[string]spec.Value{"TERM": {Ref: "nobody"}} }, reason.BadSpec},
		"key of no credential": {func(_ *Runner, s *spec.Spec) {
			s.Broker.Keys = []spec.Key{{Env: "TERM", Provider: "anthropic", Secret: "ref:anthropic"}}
		}, reason.BadSpec},
		"key of no provider": {func(_ *Runner, s *spec.Spec) {
			base := "https://example.com"
			s.Broker.Keys = []spec.Key{{Env: "ANTHROPIC_API_KEY", Provider: "nobody", Secret: "ref:anthropic", BaseURL: &base}}
		}, reason.BadSpec},
		"malformed key": {func(_ *Runner, s *spec.Spec) {
			s.Env = map[string]spec.Value{"ANTHROPIC_API_KEY": {Text: secret.New("a\nb")}}
		}, reason.BadSpec},
		"malformed host":     {func(_ *Runner, s *spec.Spec) { s.Net.Egress.Allow = &[]string{"*"} }, reason.BadSpec},
		"malformed upstream": {func(_ *Runner, s *spec.Spec) { s.Net.Harness.Upstream = "http://x" }, reason.BadSpec},
		"no bubblewrap":      {func(r *Runner, _ *spec.Spec) { r.Path = "/nonexistent" }, reason.NoBwrap},
		"no work folder":     {func(_ *Runner, s *spec.Spec) { s.Cwd = "/srv/no-such-folder" }, ""},
	} {
		r, counted := newRunner(t)
		s := plain(t)
		before := openFiles(t)
		c.change(r, &s)
		turn, _, err := r.Prepare(s, Way{First: box.LeaseFD})
		if err == nil {
			turn.Abandon()
			t.Errorf("%s: a box", name)
			continue
		}
		if code := reason.Of(err).Code; c.code != "" && code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		if n := len(r.Running()); n != 0 || counted("refused") != 1 || openFiles(t) != before {
			t.Errorf("%s: %d boxes left, counted %d times, %d files, %d before", name, n, counted("refused"), openFiles(t), before)
		}
		if strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error shows a key: %v", name, err)
		}
	}
}

func TestUnbrokeredIsRememberedAndNeverNull(t *testing.T) {
	r, _ := newRunner(t)
	if got := r.Unbrokered(); got == nil || len(got) != 0 {
		t.Errorf("%v", got)
	}
	r.raw([]string{"B", "A"})
	r.raw([]string{"A"})
	if got := r.Unbrokered(); !slices.Equal(got, []string{"A", "B"}) {
		t.Errorf("%v", got)
	}
}

func TestRefusalsAreCountedAndPassedOn(t *testing.T) {
	r, counted := newRunner(t)
	cause := errors.New("x")
	if err := r.Refuse(spec.Spec{}, cause); err != cause || counted("refused") != 1 {
		t.Errorf("%v, %d", err, counted("refused"))
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
