package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/report"
)

func someChecks() report.Checks {
	return report.Checks{Profile: "full", At: time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC), Results: []report.Result{
		{ID: "D1", Layer: "mounts", Verdict: "pass", MS: 3, Why: "ENOENT"},
		{ID: "D2", Layer: "mounts", Verdict: "fail", MS: 1204, Why: `read 7 bytes of <"a"> & 漢`},
		{ID: "P1", Layer: "pid-namespace", Verdict: "pass", Why: "none"},
		{ID: "N1", Layer: "network-namespace", Verdict: "inconclusive", Why: "it does not hold outside that the port answers outside"},
		{ID: "F11", Layer: "mounts", Verdict: "pass", Why: "two files"},
	}}
}

func TestTheMatrixOfChecks(t *testing.T) {
	good := report.Checks{Results: someChecks().Results[:1]}
	mutated := someChecks()
	mutated.Declared = []string{"D2"}
	for name, c := range map[string]struct {
		p      paint
		checks report.Checks
	}{"matrix-good": {false, good}, "matrix-bad": {false, mutated}, "matrix-colour": {true, someChecks()}} {
		var b strings.Builder
		printChecks(&b, c.p, c.checks)
		golden(t, name, b.String())
		if strings.Contains(b.String(), "\x1b") != bool(c.p) {
			t.Errorf("%s: colours: %q", name, b.String())
		}
	}
}

func TestJUnit(t *testing.T) {
	c := someChecks()
	r := report.Report{Build: "1", Bwrap: "0.8.0", Kernel: "6.1"}.WithChecks(c, c.At)
	var b strings.Builder
	if err := writeJUnit(&b, r, c.At, 1500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	golden(t, "junit.xml", b.String())
}
