package turn

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/events"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/journal"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// LearnWarning stands wherever a learning box shows.
const LearnWarning = "learn mode: no list of hosts or ports is held, this machine's neither; what was reached is told when the box ends (addresses, refused names and port 25 stay closed)"

// Narrow puts a box's own lists beside the machine's. Both have to let a host
// through, so a box's can only narrow the machine's.
func Narrow(machine gate.Dialer, e spec.Egress) (gate.Dialer, error) {
	lists, err := e.Lists()
	if err != nil {
		return machine, err
	}
	machine.BoxHosts, machine.BoxDeny, machine.BoxPorts = lists.Allow, lists.Deny, lists.Ports
	if e.Learn {
		machine.Learn = &gate.Lessons{}
	}
	return machine, nil
}

// narrow makes this box's dialer, with a budget of its own.
func (t *Turn) narrow(machine gate.Dialer) (gate.Dialer, error) {
	dialer, err := Narrow(machine, t.Spec.Net.Egress)
	dialer.Budget = gate.NewBudget(t.Spec.Net.Egress.MaxBytes, func() {
		t.log(journal.BudgetSpent, slog.Int64("max_bytes", t.Spec.Net.Egress.MaxBytes))
		t.record(events.Event{Event: journal.BudgetSpent.Name})
	})
	return dialer, err
}

// Judge says what this box's gate would answer for a host, and sends nothing.
// Before the engine runs there is no gate yet.
func (t *Turn) Judge(h hostport.Host) (gate.Opinion, error) {
	select {
	case <-t.ready:
	default:
		return gate.Opinion{}, reason.New(reason.NoSuchBox, "the box %s has not started yet", t.ID)
	}
	if mode := t.Spec.Net.Mode; mode != "gated" {
		return gate.Opinion{}, reason.New(reason.Usage, "the box has no egress gate: its net.mode is %s", mode)
	}
	return t.egress.Judge(h), nil
}

// Learns tells whether the box's lists are noted instead of held.
func (t *Turn) Learns() bool { return t.Spec.Net.Egress.Learn }

// Advice gives the lists under which a learning box would have reached what it
// did; nil for another.
func (t *Turn) Advice() *gate.Advice { return t.egress.Advice() }

// learns says so where an operator looks.
func (t *Turn) learns() {
	if t.Learns() {
		t.log(journal.BoxLearns)
		t.record(events.Event{Event: journal.BoxLearns.Name})
	}
}

func (t *Turn) learnt() {
	advice := t.Advice()
	if advice == nil {
		return
	}
	t.log(journal.BoxLearnt, slog.Int("hosts", advice.Hosts), slog.String("allow", strings.Join(advice.Allow, ",")))
	t.record(events.Event{Event: journal.BoxLearnt.Name, Learnt: advice})
}

// record keeps an event of this box.
func (t *Turn) record(e events.Event) uint64 {
	e.Box, e.Bot, e.Conversation, e.Engine = t.ID, t.Spec.Bot, t.Spec.Conversation, t.Spec.Engine
	return t.runner.Events.Add(e)
}

// decided keeps what a gate decided. What it refused an operator looks for, so
// that is logged, too. Where a box went is kept for those who ask, and logged
// only where OMB_LOG asks for it: there are thousands of them.
func (t *Turn) decided(d gate.Decision) {
	kind, verdict := journal.GateRefusal, gate.Refused
	if d.Allowed {
		kind, verdict = journal.GateAllowed, gate.Allowed
	}
	ms := float64(d.Duration.Round(time.Microsecond).Microseconds()) / 1000
	seq := t.runner.Events.Add(events.Event{Event: kind.Name, Box: t.ID, Decision: &events.Decision{
		Verdict: verdict, Method: d.Method, Class: d.Class, Host: d.Host, Port: d.Port, Status: d.Status, Up: d.Up, Down: d.Down, Ms: ms,
	}})
	if !t.runner.Log.Enabled(context.Background(), kind.Level) {
		return
	}
	t.log(kind, slog.Uint64("seq", seq), slog.String("method", d.Method), slog.String("host", d.Host),
		slog.Int("port", int(d.Port)), slog.String("class", d.Class), slog.Int("status", d.Status),
		slog.Int64("up", d.Up), slog.Int64("down", d.Down), slog.Float64("ms", ms))
}
