package control

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/wire"
)

// fake is a world that writes down what the machine does, on a clock of its own.
type fake struct {
	clock    time.Time
	did      []string
	startErr error
}

func (f *fake) do(format string, a ...any) { f.did = append(f.did, fmt.Sprintf(format, a...)) }
func (f *fake) now() time.Time             { return f.clock }
func (f *fake) startWorker(e uint32) error { f.do("start %d", e); return f.startErr }
func (f *fake) send(v wire.Verb, kv ...string) error {
	f.do("%s", strings.TrimSpace(string(v)+" "+strings.Join(kv, " ")))
	return nil
}
func (f *fake) signalWorker(s syscall.Signal)  { f.do("worker %d", s) }
func (f *fake) startCommand() (int, error)     { f.do("command"); return 77, nil }
func (f *fake) signalCommand(s syscall.Signal) { f.do("command %d", s) }
func (f *fake) notify(s string)                { f.do("%s", s) }
func (f *fake) user(fr wire.Frame) error       { f.do("%s", fr.Verb); return nil }
func (f *fake) log(string, ...any)             {}

func boot(mode Mode) (*machine, *fake) {
	f := &fake{clock: time.Unix(1e9, 0)}
	m := &machine{world: f, mode: mode, budget: 4 * time.Second, every: pingEvery}
	m.start()
	return m, f
}

func (m *machine) hear(verb wire.Verb, kv ...string) {
	args := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		args[kv[i]] = kv[i+1]
	}
	m.frame(wire.Frame{Verb: verb, Args: args})
}

func (m *machine) becomeReady() {
	m.hear(wire.HelloAck, "ver", wire.Version, "build", wire.Build)
	m.hear(wire.Ready)
}

// pass lets time go by to the machine's own deadline.
func pass(m *machine, f *fake) time.Duration {
	d := m.due.Sub(f.clock)
	f.clock = m.due
	m.deadline()
	return d
}

func did(t *testing.T, f *fake, want ...string) {
	t.Helper()
	if strings.Join(f.did, "; ") != strings.Join(want, "; ") {
		t.Errorf("did\n%q\nwant\n%q", f.did, want)
	}
	f.did = nil
}

func TestThreeMissedPingsAbortThenKill(t *testing.T) {
	m, f := boot(Serve)
	m.becomeReady()
	f.did = nil
	for range 3 {
		pass(m, f)
	}
	did(t, f, "ping", "ping", "ping")
	pass(m, f)
	did(t, f, "worker 6")
	if d := pass(m, f); d != abortGrace {
		t.Errorf("killed after %v", d)
	}
	did(t, f, "worker 9")

	m, f = boot(Serve) // control: an answered ping is no miss
	m.becomeReady()
	for range 10 {
		pass(m, f)
		m.hear(wire.Pong)
	}
	if m.state != ready {
		t.Errorf("state %d", m.state)
	}
}

func TestBackoffDoublesAndEnds(t *testing.T) {
	m, f := boot(Serve)
	var waits []time.Duration
	for range 4 {
		m.workerEnded(7 << 8)
		waits = append(waits, pass(m, f))
	}
	if fmt.Sprint(waits) != "[250ms 500ms 1s 2s]" {
		t.Errorf("waited %v", waits)
	}
	m.workerEnded(7 << 8)
	if status, err := m.exit(); m.state != stopped || status != 111 || err == nil {
		t.Errorf("state %d exit %d %v", m.state, status, err)
	}

	m, f = boot(Serve) // slow crashes never end it, and the wait has a ceiling
	var last time.Duration
	for range 20 {
		f.clock = f.clock.Add(20 * time.Second)
		m.workerEnded(7 << 8)
		last = pass(m, f)
	}
	if m.state != starting || last != backoffMax {
		t.Errorf("state %d, last wait %v", m.state, last)
	}
	m.becomeReady() // one that has been at work starts again at once, and the next wait is short again
	f.clock = f.clock.Add(settled)
	m.workerEnded(7 << 8)
	if d := pass(m, f); d != 0 {
		t.Errorf("waited %v", d)
	}
	m.workerEnded(7 << 8)
	if d := pass(m, f); d != backoffMin {
		t.Errorf("waited %v", d)
	}
}

// Open boxes wait for the next worker, so a worker that could start is started
// again however often somebody kills it. One that dies right after its start
// is not.
func TestAWorkerAtWorkIsAlwaysStartedAgain(t *testing.T) {
	for _, c := range []struct {
		lives  time.Duration
		starts uint32
	}{{settled, 101}, {settled - 1, 5}} {
		m, f := boot(Serve)
		for range 100 {
			m.becomeReady()
			f.clock = f.clock.Add(c.lives)
			m.workerEnded(9)
			if m.state != backoff {
				break
			}
			pass(m, f)
		}
		if m.epoch != c.starts {
			t.Errorf("one that lived %v was started %d times", c.lives, m.epoch)
		}
	}
}

func TestForkThatFailsIsRetried(t *testing.T) {
	f := &fake{clock: time.Unix(1e9, 0), startErr: errors.New("EAGAIN")}
	m := &machine{world: f, budget: time.Second}
	m.start()
	if m.state != backoff {
		t.Errorf("state %d", m.state)
	}
	f.startErr = nil
	pass(m, f)
	did(t, f, "start 1", "start 2", "hello ver 1 build "+wire.Build)
}

func TestFramesOutOfPlaceKillTheWorker(t *testing.T) {
	for _, verb := range []wire.Verb{wire.Ready, wire.Pong, wire.Drained,
		wire.UIDLease, wire.UIDMap, wire.UIDRelease, wire.BoxKill} {
		m, f := boot(Box)
		m.hear(verb, "box", "b", "code", "1") // before hello.ack
		if m.state != replacing || f.did[len(f.did)-1] != "worker 9" {
			t.Errorf("%s: %q", verb, f.did)
		}
	}
}

func TestTerminalKeepsItsSignals(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		m, _ := boot(Box)
		m.terminal = terminal
		m.becomeReady()
		m.signal(syscall.SIGINT)
		if (m.state == draining) == terminal {
			t.Errorf("terminal %t: state %d", terminal, m.state)
		}
	}
}

func TestBoxLife(t *testing.T) {
	m, f := boot(Box)
	m.becomeReady()
	m.signal(syscall.SIGUSR1)
	m.commandEnded(7)
	m.hear(wire.Drained)
	m.workerEnded(0)
	did(t, f, "start 1", "hello ver 1 build "+wire.Build, "command", "READY=1", "box.signal pid 77 sig 10",
		"STOPPING=1", "drain seconds 3.200", "command 15")
	if status, err := m.exit(); m.state != stopped || status != 7 || err != nil {
		t.Errorf("state %d exit %d %v", m.state, status, err)
	}
}

// The box of the command is another's child than the worker: it is started
// once, whatever becomes of workers, and a stop ends it in every state.
func TestABoxOutlivesItsWorkers(t *testing.T) {
	m, f := boot(Box)
	m.becomeReady()
	for range 20 {
		f.clock = f.clock.Add(settled)
		m.workerEnded(9)
		m.signal(syscall.SIGHUP) // nobody is there to hand it on
		pass(m, f)
		m.becomeReady()
	}
	if all := strings.Join(f.did, " "); strings.Count(all, "command") != 1 || strings.Contains(all, "box.signal") || m.epoch != 21 {
		t.Errorf("epoch %d, did %s", m.epoch, all)
	}
	f.clock, f.did = f.clock.Add(settled), nil
	m.workerEnded(9)
	m.signal(syscall.SIGTERM)
	did(t, f, "STOPPING=1", "worker 9", "command 15")
	m.commandEnded(143)
	if status, err := m.exit(); m.state != stopped || status != 143 || err != nil {
		t.Errorf("state %d exit %d %v", m.state, status, err)
	}

	m, f = boot(Box) // a worker that dies while it drains leaves the box to us
	m.becomeReady()
	f.did = nil
	m.signal(syscall.SIGTERM)
	did(t, f, "STOPPING=1", "drain seconds 3.200")
	m.workerEnded(9)
	did(t, f, "command 15")
	pass(m, f)
	did(t, f, "worker 9", "command 9")
}

func TestAPlainCommandThatWantsToStartAgain(t *testing.T) {
	m, f := boot(Plain)
	m.becomeReady()
	f.did = nil
	m.commandEnded(75)
	if d := pass(m, f); d != backoffMin || m.epoch != 1 {
		t.Errorf("after %v, worker %d", d, m.epoch)
	}
	did(t, f, "command", "ping")
	m.workerEnded(9) // and with the next worker, where there is none
	m.commandEnded(75)
	pass(m, f)
	f.did = nil
	m.becomeReady()
	did(t, f, "READY=1", "command")
	m.signal(syscall.SIGTERM) // but not after a stop
	m.commandEnded(75)
	m.workerEnded(0)
	if status, err := m.exit(); m.state != stopped || status != 75 || err != nil {
		t.Errorf("state %d exit %d %v", m.state, status, err)
	}

	m, _ = boot(Box) // a box's status is its own
	m.becomeReady()
	m.commandEnded(75)
	if m.state != draining || m.status != 75 {
		t.Errorf("state %d status %d", m.state, m.status)
	}
}
