package cli

import (
	"log/slog"
	"sync"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/journal"
	"github.com/openmausbot/botbox/worker/internal/report"
	"github.com/openmausbot/botbox/worker/internal/selfcheck"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// state is what the worker knows of its machine.
type state struct {
	w     *worker
	entry box.Program
	probe box.Program
	stop  chan struct{} // closed: end a self-check that is under way

	running sync.Mutex // one self-check at a time

	signer report.Signer

	mu       sync.Mutex
	found    box.Finding
	seen     glance // of found
	checks   report.Checks
	standing standing
	jitter   time.Duration // until the next run, over what is usual
}

// check runs the self-check and keeps its result.
func (s *state) check() (report.Checks, error) {
	s.running.Lock()
	defer s.running.Unlock()
	basis := s.basis() // what changes while it runs makes it stale
	checks, err := selfcheck.Run(s.w.runner, s.probe, selfcheck.Wish{Profile: "seed", Stop: s.stop})
	checks.Basis = basis
	if err != nil {
		s.unclear(err)
	}
	if len(checks.Results) > 0 { // also with an error: what could not be checked has failed
		s.settle(checks)
	}
	return checks, err
}

// unclear says why a self-check could not be carried out, which its results do
// not. One that was told to stop needs no word.
func (s *state) unclear(err error) {
	select {
	case <-s.stop:
	default:
		s.w.log.Warn("the self-check could not be carried out", slog.String("cause", err.Error()))
	}
}

// end returns when the self-check that was under way, and has been told to
// stop, has tidied up. No other begins.
func (s *state) end() { s.running.Lock() }

// report is the body of GET /api/cloud/box.
func (s *state) report() report.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	settings := s.w.call.settings
	r := report.New(s.found, box.Wanted(settings.BotBox, settings.CloudRole), kernelRelease())
	now := time.Now()
	r = r.WithChecks(s.checks, now).OnBasis(s.checks, now, s.basis())
	if s.standing.off != nil {
		if s.refusing() == nil {
			r.Warnings = append(r.Warnings, "boxes are given although the self-check failed (OMB_CHECK_FAILED=warn)")
		} else if r.Reason == nil {
			code := string(reason.CheckFailed)
			r.Box, r.Reason = "off", &code
		}
	}
	counters := s.w.store.Counters()
	r.Boxed, r.Refused = int64(counters["boxed"]), int64(counters["refused"])
	r.Broker.Unbrokered, r.Broker.Intercepted = s.w.runner.Unbrokered(), s.w.runner.Intercepted()
	r.Broker.Count(counters)
	r.Broker.Audit.Seq, r.Broker.Audit.Head = s.w.audit.Head()
	r.Limits = s.w.runner.CanHold()
	running := s.w.runner.Running()
	r.Open = len(running)
	for _, t := range running {
		if t.Spec.Net.Mode == "shared" {
			r.Warnings = append(r.Warnings, "box "+t.ID+": "+box.SharedWarning)
		}
		if t.Learns() {
			r.Warnings = append(r.Warnings, "box "+t.ID+": "+turn.LearnWarning)
		}
	}
	for _, step := range s.w.handover.Steps {
		r.Steps = append(r.Steps, report.Step{Name: step.Name, State: string(step.State), Evidence: step.Evidence})
	}
	if s.w.runner.Machine.Nameless {
		r.Warnings = append(r.Warnings, box.NamelessWarning)
	}
	r.Egress = egressOf(s.w.runner.Egress)
	r.Warnings = append(r.Warnings, exceptions(s.w.runner.Egress)...)
	return r
}

// logBroker writes the broker's refusals into the log.
func logBroker(log *slog.Logger, e broker.Event) {
	switch {
	case e.Kind == broker.Stealing:
		journal.TokenStolen.Log(log, slog.String("box_id", e.Box), slog.String("owner_box_id", e.Owner))
	case e.Kind == broker.Failing:
		log.Error("the broker failed on a request", slog.String("box_id", e.Box), slog.String("stack", e.Stack))
	case e.Redacted > 0:
		journal.KeyEchoed.Log(log, slog.String("box_id", e.Box), slog.String("bot_id", e.Bot), slog.String("conversation_id", e.Conversation),
			slog.String("grant", e.Grant), slog.String("route", e.Route), slog.Int64("times", e.Redacted))
	}
}

// logSteps says which hardening steps did not hold.
func logSteps(log *slog.Logger, steps []wire.Step) {
	for _, s := range steps {
		if s.State == wire.StepFailed || s.State == wire.StepRefused {
			journal.HardeningFailed.Log(log, slog.String("step", s.Name), slog.String("state", string(s.State)))
		}
	}
}
