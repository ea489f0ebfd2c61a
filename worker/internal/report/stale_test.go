package report

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// An old pass is no pass, and says so to whoever reads only one of the fields.
func TestAStaleRunIsNotOK(t *testing.T) {
	at := time.Date(2026, 11, 30, 1, 0, 0, 0, time.UTC)
	here := Basis{"6.1", "bwrap A"}
	c := Checks{At: at, Basis: here, Results: []Result{{ID: "D1", Verdict: "pass"}, {ID: "D2", Verdict: "fail"}}}
	for name, tt := range map[string]struct {
		after time.Duration
		is    Basis
		says  string
	}{
		"a minute":           {time.Minute, here, ""},
		"a day":              {24 * time.Hour, here, ""},
		"more than a day":    {25 * time.Hour, here, "25 hours"},
		"another kernel":     {time.Minute, Basis{"6.2", "bwrap A"}, "kernel"},
		"another bubblewrap": {time.Minute, Basis{"6.1", "bwrap B"}, "bubblewrap"},
		"no bubblewrap":      {time.Minute, Basis{"6.1", ""}, "bubblewrap"},
		"of the future":      {-time.Hour, here, "future"},
	} {
		now := at.Add(tt.after)
		r := Report{}.WithChecks(c, now).OnBasis(c, now, tt.is)
		if tt.says == "" {
			if r.Stale != "" || r.Checks != "1/2" || !slices.Equal(r.Failed, []string{"D2"}) {
				t.Errorf("%s: %+v", name, r)
			}
			continue
		}
		if !strings.Contains(r.Stale, tt.says) || r.Checks != "0/2" || !slices.Equal(r.Failed, []string{"D2", "stale"}) || r.Results[0].Verdict != "pass" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := (Report{}).OnBasis(Checks{}, at, here); r.Stale != "" || r.Checks != "" {
		t.Errorf("before the first run: %+v", r)
	}
}
