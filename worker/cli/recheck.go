package cli

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/journal"
	"github.com/openmausbot/botbox/worker/internal/report"
)

// When the self-check is made again.
const (
	recheckEvery  = 6 * time.Hour    // and up to recheckJitter more, so that many machines do not do it at once
	recheckJitter = 30 * time.Minute //
	recheckFailed = time.Minute      // after a run that was not good
	lookEvery     = 5 * time.Second  // for another kernel or bubblewrap, which takes one stat
	// unclearRuns is how many runs in a row that could not be carried out
	// count as one that failed: a machine can be too busy once.
	unclearRuns = 3
)

// standing is what the latest runs of the self-check mean for new boxes.
type standing struct {
	unclear int // runs in a row that could not be carried out, whole or in part
	off     error
}

// after takes one more run into account. One check that did not hold turns
// the box off; one good run turns it on again.
func (s standing) after(c report.Checks) standing {
	var failed, unclear []string
	for _, r := range c.Results {
		switch r.Verdict {
		case "pass":
		case "fail":
			failed = append(failed, r.ID)
		default:
			unclear = append(unclear, r.ID)
		}
	}
	switch {
	case len(failed) > 0:
		return standing{off: checkFailed("these checks did not hold: %s", strings.Join(failed, " "))}
	case len(unclear) == 0:
		return standing{}
	case s.unclear+1 >= unclearRuns && s.off == nil:
		s.off = checkFailed("these checks could not be carried out, %d times in a row: %s", unclearRuns, strings.Join(unclear, " "))
	}
	s.unclear++
	return s // what has failed stays so until a good run
}

func checkFailed(format string, args ...any) error {
	return reason.New(reason.BoxOff, "the box is off: the self-check failed (check-failed): "+format, args...).
		WithHint("see botbox check on this machine; OMB_CHECK_FAILED=warn gives boxes all the same")
}

// off says why new boxes are refused, unless the operator wants them all the
// same.
func (s *state) off() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusing()
}

func (s *state) refusing() error {
	if s.w.call.settings.CheckFailed == "warn" {
		return nil
	}
	return s.standing.off
}

// settle keeps a run's results, and says when the box goes off or on.
func (s *state) settle(c report.Checks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.standing.off
	s.checks, s.standing = c, s.standing.after(c)
	s.jitter = rand.N(recheckJitter)
	switch now := s.standing.off; {
	case now != nil && before == nil:
		journal.CheckFailed.Log(s.w.log, slog.String("failed", strings.Join(c.Failed(), " ")), slog.String("cause", now.Error()))
	case now == nil && before != nil:
		s.w.log.Info("the self-check holds again", slog.String("checks", c.Profile))
	}
}

// due tells whether it is time to look again.
func (g glance) due(is report.Basis, good bool, jitter time.Duration, now time.Time) bool {
	age := report.Age(g.at, now)
	switch {
	case g.basis != is, age < 0: // the clock was set back
		return true
	case !good:
		return age >= recheckFailed
	}
	return age >= recheckEvery+jitter
}

// boxesFirst is how long a worker that took boxes over serves them before it
// looks at the machine, which is known to make boxes then.
const boxesFirst = 2 * time.Second

// watch looks at the machine again and again until the worker stops.
func (s *state) watch() {
	if len(s.w.runner.Running()) > 0 {
		select {
		case <-time.After(boxesFirst):
		case <-s.stop:
			return
		}
	}
	s.look()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		s.mu.Lock()
		seen, jitter, good := s.seen, s.jitter, s.found.Err == nil && len(s.checks.Failed()) == 0
		s.mu.Unlock()
		if seen.due(s.basis(), good, jitter, time.Now()) {
			s.look()
		}
	}
}

// look finds out whether this machine can box, and if so, checks the box.
func (s *state) look() {
	seen := glance{s.basis(), time.Now()}
	found := s.w.runner.Spawner.Detect(os.Getenv("PATH"), s.entry)
	s.mu.Lock()
	s.found, s.seen = found, seen
	s.mu.Unlock()
	if found.Err == nil {
		s.check()
	}
}

// glance is when the machine was looked at, and what it was.
type glance struct {
	basis report.Basis
	at    time.Time
}
