package report

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
)

// seed are the fields that an Admin reads first, in their order.
func seed(t *testing.T, r Report) string {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(b), `,"steps"`)
	return head
}

func TestReport(t *testing.T) {
	const broker = `"broker":{"unbrokered":[],"intercepted":[],"requests":0,"refused":0,"limited":0,"redacted":0,"stolen":0,"rotated":0,"audit":{"seq":0,"head":""}}`
	noBox := reason.New(reason.NoBwrap, "there is no bwrap in PATH")
	off := reason.New(reason.SwitchedOff, "OMB_BOT_BOX is 0")
	at := time.Date(2026, 11, 30, 1, 0, 0, 0, time.UTC)
	some := Checks{Profile: "seed", At: at, Results: []Result{
		{ID: "D1", Layer: "mounts", Verdict: "pass", MS: 3, Why: "hidden"},
		{ID: "D2", Layer: "mounts", Verdict: "fail", MS: 1, Why: "seen"},
		{ID: "D3", Layer: "mounts", Verdict: "inconclusive", Why: "the server is away"},
	}}
	for name, c := range map[string]struct {
		found  box.Finding
		wanted error
		checks Checks
		want   string
	}{
		"on, not checked yet": {box.Finding{Version: "0.8.0"}, nil, Checks{},
			`{"box":"bwrap","reason":null,"checks":"","failed":[],"boxed":0,"refused":0,` + broker + `,"age_s":null`},
		"no bubblewrap": {box.Finding{Err: noBox}, nil, Checks{},
			`{"box":"off","reason":"no-bwrap","checks":"","failed":[],"boxed":0,"refused":0,` + broker + `,"age_s":null`},
		"switched off comes before what the machine lacks": {box.Finding{Err: noBox}, off, Checks{},
			`{"box":"off","reason":"switched-off","checks":"","failed":[],"boxed":0,"refused":0,` + broker + `,"age_s":null`},
		"an error without a code": {box.Finding{Err: errors.New("x")}, nil, Checks{},
			`{"box":"off","reason":"internal","checks":"","failed":[],"boxed":0,"refused":0,` + broker + `,"age_s":null`},
		"what could not be checked has failed": {box.Finding{}, nil, some,
			`{"box":"bwrap","reason":null,"checks":"1/3","failed":["D2","D3"],"boxed":0,"refused":0,` + broker + `,"profile":"seed","results":[` +
				`{"id":"D1","layer":"mounts","verdict":"pass","ms":3,"why":"hidden"},{"id":"D2","layer":"mounts","verdict":"fail","ms":1,"why":"seen"},` +
				`{"id":"D3","layer":"mounts","verdict":"inconclusive","ms":0,"why":"the server is away"}],"age_s":90`},
	} {
		r := New(c.found, c.wanted, "6.1").WithChecks(c.checks, at.Add(90*time.Second))
		if got := seed(t, r); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
		if r.Kernel != "6.1" || r.Bwrap != c.found.Version || r.Steps == nil || r.Warnings == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A verdict that nobody knows is no pass.
func TestOnlyPassIsAPass(t *testing.T) {
	c := Checks{Results: []Result{{ID: "A", Verdict: "pass"}, {ID: "B", Verdict: "PASS"}, {ID: "C", Verdict: ""}, {ID: "D", Verdict: "passed"}}}
	if c.Passed() != 1 || !slices.Equal(c.Failed(), []string{"B", "C", "D"}) {
		t.Errorf("%d passed, failed: %v", c.Passed(), c.Failed())
	}
	if none := (Checks{}); none.Passed() != 0 || none.Failed() == nil {
		t.Errorf("no checks: %d, %v", none.Passed(), none.Failed())
	}
}

func TestTheBrokersCounters(t *testing.T) {
	var b Brokered
	b.Count(map[string]uint64{"broker.requests": 7, "broker.stolen": 2, "broker.redacted": 1, "boxed": 5})
	if b.Requests != 7 || b.Stolen != 2 || b.Redacted != 1 || b.Limited != 0 {
		t.Errorf("%+v", b)
	}
}
