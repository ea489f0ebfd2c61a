package main

import (
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
