package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/report"
)

// One check that did not hold refuses boxes at once; a machine that was too
// busy to carry them out is believed twice.
func TestWhatTurnsTheBoxOff(t *testing.T) {
	for runs, off := range map[string]bool{
		"": false, "P": false, "F": true, "PF": true, "FP": false, "FPF": true,
		"I": false, "II": false, "III": true, "IIPI": false, "IIIP": false,
		"FI": true, "FII": true, "FIP": false, "IIF": true,
		"B": true, // both in one run
	} {
		s := standing{}
		for _, kind := range runs {
			c := report.Checks{Results: []report.Result{{ID: "D1", Verdict: "pass"}}}
			if kind == 'I' || kind == 'B' {
				c.Results = append(c.Results, report.Result{ID: "N1", Verdict: "inconclusive"})
			}
			if kind == 'F' || kind == 'B' {
				c.Results = append(c.Results, report.Result{ID: "D2", Verdict: "fail"})
			}
			s = s.after(c)
		}
		if (s.off != nil) != off {
			t.Errorf("after %q: %v", runs, s.off)
		}
		if off && (reason.Of(s.off).Code != reason.BoxOff || !strings.Contains(s.off.Error(), "check-failed")) {
			t.Errorf("after %q: %v", runs, s.off)
		}
	}
}

func TestWhenTheCheckIsMadeAgain(t *testing.T) {
	at := time.Date(2026, 11, 30, 1, 0, 0, 0, time.UTC)
	here := report.Basis{Kernel: "6.1", Bwrap: "A"}
	for name, c := range map[string]struct {
		is    report.Basis
		good  bool
		after time.Duration
		due   bool
	}{
		"just now":            {here, true, time.Second, false},
		"within the jitter":   {here, true, 6*time.Hour + 9*time.Minute, false},
		"after six hours":     {here, true, 6*time.Hour + 10*time.Minute, true},
		"failed just now":     {here, false, 59 * time.Second, false},
		"failed a minute ago": {here, false, time.Minute, true},
		"another bubblewrap":  {report.Basis{Kernel: "6.1", Bwrap: "B"}, true, time.Second, true},
		"no bubblewrap":       {report.Basis{Kernel: "6.1"}, true, time.Second, true},
		"another kernel":      {report.Basis{Kernel: "6.2", Bwrap: "A"}, true, time.Second, true},
		"the clock set back":  {here, true, -time.Second, true},
	} {
		if due := (glance{here, at}).due(c.is, c.good, 10*time.Minute, at.Add(c.after)); due != c.due {
			t.Errorf("%s: %v", name, due)
		}
	}
}
