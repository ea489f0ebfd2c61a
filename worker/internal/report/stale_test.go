package report

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
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

// A time of this process has two clocks in it, and only one of them goes on
// while a machine sleeps; the other can be set.
func TestAgeKnowsBothClocks(t *testing.T) {
	at := time.Now()
	after := func(wall, lived time.Duration) time.Time {
		now := at.Add(wall)
		// The second field of a Time with a monotonic clock is that clock.
		*(*time.Duration)(unsafe.Add(unsafe.Pointer(&now), 8)) += lived - wall
		if now.Sub(at) != lived || now.Round(0).Sub(at.Round(0)) != wall {
			t.Fatalf("control: the clocks say %v and %v", now.Round(0).Sub(at.Round(0)), now.Sub(at))
		}
		return now
	}
	here := Basis{"6.1", "bwrap A"}
	c := Checks{At: at, Basis: here, Results: []Result{{ID: "D1", Verdict: "pass"}}}
	for name, tt := range map[string]struct {
		wall, lived, age time.Duration
		says             string
	}{
		"both agree":            {time.Hour, time.Hour, time.Hour, ""},
		"slept for two days":    {48 * time.Hour, time.Minute, 48 * time.Hour, "48 hours"},
		"set on by ten years":   {87600 * time.Hour, time.Minute, 87600 * time.Hour, "hours"},
		"set back by two days":  {-47 * time.Hour, time.Hour, -47 * time.Hour, "set back"},
		"set back by a moment":  {-time.Millisecond, time.Minute, time.Minute, ""},
		"set back, and old":     {time.Minute, 30 * time.Hour, 30 * time.Hour, "30 hours"},
		"slept, then set right": {time.Hour, 50 * time.Minute, time.Hour, ""},
	} {
		now := after(tt.wall, tt.lived)
		if age, says := Age(at, now), c.Stale(now, here); age != tt.age || !strings.Contains(says, tt.says) || (says == "") != (tt.says == "") {
			t.Errorf("%s: %v old, stale %q", name, age, says)
		}
	}
}
