package control

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/wire"
)

// storm feeds what a hostile worker could write to the real decoder and the
// real machine, and knows by a model of its own what may come of it.
type storm struct {
	t     *testing.T
	rng   *rand.Rand
	m     *machine
	f     *fake
	tally map[string]int

	// The model: what the worker of now may say.
	greeted, ready, hated, draining bool
	pings                           int
}

// drip hands a stream over in pieces, as a pipe may.
type drip struct {
	rng *rand.Rand
	b   []byte
}

func (d *drip) Read(p []byte) (int, error) {
	if len(d.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, d.b[:min(len(d.b), 1+d.rng.IntN(200))])
	d.b = d.b[n:]
	return n, nil
}

// A million frames, most of them spoiled: no panic, and root does for each
// what the table says, which for nearly all of them is to kill the worker.
func TestAMillionFrames(t *testing.T) {
	const frames = 1_000_000
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := &storm{t: t, rng: rand.New(rand.NewPCG(seed, 0)), tally: map[string]int{}}
	began := time.Now()
	for s.tally["frames"] < frames && !t.Failed() {
		if s.m == nil {
			s.m, s.f = boot([]Mode{Serve, Plain}[s.rng.IntN(2)])
			s.begin()
		}
		s.session()
	}
	t.Logf("%v", time.Since(began).Round(time.Millisecond))
	for _, what := range slices.Sorted(maps.Keys(s.tally)) {
		t.Logf("%8d %s", s.tally[what], what)
	}
	// Controls: both kinds were among them, and each verb did its work.
	for what, least := range map[string]int{"not a frame": 100_000, "not expected": 10_000, "out of order": 10_000, "hello.ack": 10_000,
		"ready": 10_000, "pong": 1000, "uid.lease": 1000, "uid.map": 1000, "drained": 50, "another build": 100, "longest": 1000} {
		if s.tally[what] < least && !t.Failed() {
			t.Errorf("%d of %s, which is no test of it", s.tally[what], what)
		}
	}
}

func (s *storm) begin() {
	s.greeted, s.ready, s.hated, s.draining, s.pings = false, false, false, false, 0
	s.f.did = nil
}

// session is the life of one worker, up to the first thing that ends it.
func (s *storm) session() {
	stream := s.stream()
	r, order := wire.NewReader(&drip{s.rng, stream}), wire.Order{Epoch: s.m.epoch}
	for {
		if s.rng.IntN(4) == 0 && s.m.state == ready && s.m.pings < pingMisses {
			pass(s.m, s.f)
			s.pings++
			s.did("ping")
		}
		if s.rng.IntN(200) == 0 && !s.draining && !s.hated {
			s.draining = true
			s.m.signal(syscall.SIGTERM)
			s.f.did = nil
		}
		f, err := wire.Read(r, wire.ToSupervisor)
		if errors.Is(err, io.EOF) {
			break
		}
		s.tally["frames"]++
		if err != nil {
			s.refused("not a frame", err)
			break
		}
		if line, err := wire.Encode(wire.ToSupervisor, f); err != nil || !bytes.Contains(stream, line) {
			s.t.Errorf("%+v was read, which nobody wrote", f)
		}
		if err := order.Check(f); err != nil {
			s.refused("out of order", err)
			break
		}
		s.judge(f)
	}
	// Whatever it was, it ends; and the next one comes a while later.
	s.f.clock = s.f.clock.Add(time.Minute)
	if s.m.workerEnded(9); s.m.state == backoff {
		pass(s.m, s.f)
	} else {
		s.m = nil // it waits for its command, or has ended
		return
	}
	s.begin()
}

func (s *storm) refused(what string, err error) {
	s.tally[what]++
	s.m.bad(err)
	if s.f.did = slices.DeleteFunc(s.f.did, func(d string) bool { return d == "worker 9" }); len(s.f.did) > 0 {
		s.t.Errorf("did %q for it", s.f.did)
	}
	s.hated = true
}

// judge tells by the model what a frame must do, and looks whether it did that
// and nothing else.
func (s *storm) judge(f wire.Frame) {
	name, want := string(f.Verb), []string{}
	switch {
	case s.hated: // it is dead already, and has not noticed
		name = "after the verdict"
	case f.Verb == wire.HelloAck && !s.greeted:
		if f.Args["ver"] != wire.Version || f.Args["build"] != wire.Build {
			s.tally["another build"]++
			s.m.frame(f)
			if s.f.did[0] != "worker 9" || s.m.state != draining || s.m.greeted {
				s.t.Errorf("another build: %q", s.f.did)
			}
			s.hated, s.draining, s.f.did = true, true, nil
			return
		}
		s.greeted = true
	case f.Verb == wire.Ready && s.greeted && !s.ready:
		s.ready = true
		if !s.draining {
			want = append(want, "READY=1")
			if s.m.mode == Plain && !s.m.launched {
				want = append(want, "command")
			}
		}
	case f.Verb == wire.Pong && s.pings > 0:
		s.pings--
		want = append(want, "WATCHDOG=1")
	case f.Verb == wire.Drained && s.draining:
	case s.greeted && (strings.HasPrefix(name, "uid.") || f.Verb == wire.BoxKill):
		want = append(want, name)
	default:
		name, want, s.hated = "not expected", append(want, "worker 9"), true
	}
	s.tally[name]++
	s.m.frame(f)
	s.did(want...)
}

func (s *storm) did(want ...string) {
	if !slices.Equal(s.f.did, want) {
		s.t.Errorf("did %q, want %q", s.f.did, want)
	}
	s.f.did = s.f.did[:0]
}
