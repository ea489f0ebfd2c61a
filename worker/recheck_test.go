package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// A bubblewrap that was exchanged under a running worker is noticed and
// checked; one that lets something through ends the worker's trust in its
// boxes until a good one is back, unless the operator named the other way.
func TestAnExchangedBubblewrap(t *testing.T) {
	real, err := exec.LookPath("bwrap")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		setting string
		refused bool
	}{{"", true}, {"OMB_CHECK_FAILED=warn", false}} {
		p := newPlace(t)
		dir := filepath.Join(p.top, "path")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		exchange := func(more string) {
			t.Helper()
			next := filepath.Join(dir, "next")
			rig.Write(t, next, fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = --args ]; then a=$2; shift 2; exec %s --args $a %s \"$@\"; fi\nexec %s \"$@\"\n", real, more, real))
			if err := os.Chmod(next, 0o755); err != nil {
				t.Fatal(err)
			}
			rig.Give(t, next)
			if err := os.Rename(next, filepath.Join(dir, "bwrap")); err != nil {
				t.Fatal(err)
			}
		}
		rig.Give(t, dir)
		exchange("")
		p.env = append(p.env, "PATH="+dir+":/usr/local/bin:/usr/bin:/bin", "OMB_BOT_BOX=1", c.setting)
		p.serve()
		told := func(want string) {
			t.Helper()
			var got string
			defer func() {
				if t.Failed() {
					t.Logf("the report: %s", got)
				}
			}()
			rig.Eventually(t, time.Minute, want, func() bool {
				got = rig.Run(t, p.botbox(nil, "report", "--json")).Stdout
				return strings.Contains(got, want)
			})
		}
		run := func() rig.Output { return rig.Run(t, p.botbox(nil, "run", "--", "echo", "boxed")) }
		told(`"checks":"29/29"`)
		if out := run(); out.Code != 0 || out.Stdout != "boxed\n" {
			t.Fatalf("positive control: %+v", out)
		}
		exchange("--setenv OMB_CLOUD_CANARY 1")
		told(`"failed":["E1"]`)
		out := run()
		if c.refused && (out.Code != 125 || !strings.Contains(out.Stderr, "reason: box_off") || !strings.Contains(out.Stderr, "E1")) {
			t.Errorf("after a failed check: %+v", out)
		}
		if c.refused {
			told(`"reason":"check-failed"`)
			exchange("")
			told(`"checks":"29/29"`)
			out = run()
		} else {
			told("boxes are given although the self-check failed")
		}
		if out.Code != 0 || out.Stdout != "boxed\n" {
			t.Errorf("%s: no box: %+v", c.setting, out)
		}
	}
}

// hurried is a worker that makes its self-check every two seconds.
var hurried = []rig.Edit{
	{"worker/cli/recheck.go", "= 6 * time.Hour ", "= 2 * time.Second "},
	{"worker/cli/recheck.go", "= 30 * time.Minute //", "= time.Millisecond //"},
	{"worker/cli/recheck.go", "= 5 * time.Second  ", "= time.Second / 4  "},
}

// over is a place with programs of edited sources.
func over(t *testing.T, edits []rig.Edit) *place {
	t.Helper()
	p := newPlace(t)
	p.bin = filepath.Join(p.top, "bin")
	if err := os.Mkdir(p.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := rig.CompileOver(p.bin, rig.Overlay(t, rig.Root(), edits), rig.Build); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{p.bin, p.top} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// What changes on a machine without any sign of it is noticed by the timer
// alone, and ends the trust in boxes.
func TestTheTimerNoticesWhatNothingTells(t *testing.T) {
	real, err := exec.LookPath("bwrap")
	if err != nil {
		t.Fatal(err)
	}
	p := over(t, hurried)
	dir, sign := filepath.Join(p.top, "path"), filepath.Join(p.top, "sign")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	rig.Give(t, dir)
	rig.Write(t, filepath.Join(dir, "bwrap"), fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = --args ] && [ -e %s ]; then a=$2; shift 2; exec %s --args $a --setenv OMB_CLOUD_CANARY 1 \"$@\"; fi\nexec %s \"$@\"\n", sign, real, real))
	p.env = append(p.env, "PATH="+dir+":/usr/local/bin:/usr/bin:/bin", "OMB_BOT_BOX=1")
	p.serve()
	told := func(want string) {
		t.Helper()
		rig.Eventually(t, time.Minute, want, func() bool {
			return strings.Contains(rig.Run(t, p.botbox(nil, "report", "--json")).Stdout, want)
		})
	}
	run := func() rig.Output { return rig.Run(t, p.botbox(nil, "run", "--", "echo", "boxed")) }
	told(`"checks":"29/29"`)
	if out := run(); out.Code != 0 || out.Stdout != "boxed\n" {
		t.Fatalf("positive control: %+v", out)
	}
	rig.Write(t, sign, "")
	told(`"failed":["E1"]`)
	if out := run(); out.Code != 125 || !strings.Contains(out.Stderr, "reason: box_off") {
		t.Errorf("after the timer's run: %+v", out)
	}
}

// Good runs are made again, too, and the report's age is the last one's.
func TestAGoodCheckIsMadeAgain(t *testing.T) {
	p := over(t, hurried)
	p.serve("OMB_BOT_BOX=1")
	younger, last := 0, int64(-1)
	rig.Eventually(t, time.Minute, "two runs more", func() bool {
		var r struct {
			AgeS   *int64 `json:"age_s"`
			Checks string
			Stale  string
		}
		if json.Unmarshal([]byte(rig.Run(t, p.botbox(nil, "report", "--json")).Stdout), &r) != nil || r.AgeS == nil {
			return false
		}
		if r.Checks != "29/29" || r.Stale != "" {
			t.Fatalf("%+v", r)
		}
		if *r.AgeS < last {
			younger++
		}
		last = *r.AgeS
		time.Sleep(100 * time.Millisecond)
		return younger == 2
	})
}

// A run that nothing has followed is stale one day, and not ok from then on,
// in the report and in the signed one.
func TestAStaleReportIsNotOK(t *testing.T) {
	p := over(t, []rig.Edit{{"worker/internal/report/stale.go", "const Fresh = 24 * time.Hour", "const Fresh = 3 * time.Second"}})
	p.serve("OMB_BOT_BOX=1")
	said := func(want string, args ...string) {
		t.Helper()
		rig.Eventually(t, time.Minute, want, func() bool {
			return strings.Contains(rig.Run(t, p.botbox(nil, append([]string{"report"}, args...)...)).Stdout, want)
		})
	}
	said(`"checks":"29/29","failed":[]`, "--json")
	said(`"checks":"0/29","failed":["stale"]`, "--json")
	said(`\"checks\":\"0/29\",\"failed\":[\"stale\"]`, "--signed")
	said("the self-check is 0 hours old")
}

// Why no self-check can be carried out stands in the log: of its results each
// can only say that it was not.
func TestASelfCheckThatCannotBegin(t *testing.T) {
	p := over(t, []rig.Edit{{"worker/internal/selfcheck/folder.go", `		{"/dev/shm"},
	}`, `		{"/nowhere"},
	}`}})
	p.env = append(p.env, "OMB_BOT_BOX=1")
	name := filepath.Join(p.top, "log")
	log, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.serveTo(log)
	rig.Eventually(t, time.Minute, "its word in the log", func() bool {
		text, _ := os.ReadFile(name)
		return strings.Contains(string(text), "the self-check could not be carried out") && strings.Contains(string(text), "/nowhere")
	})
	if out := rig.Run(t, p.botbox(nil, "report", "--json")); !strings.Contains(out.Stdout, `"checks":"0/29"`) {
		t.Errorf("the report: %+v", out)
	}
}
