package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/box"
)

// On a terminal there is progress and colour; elsewhere neither, and NO_COLOR
// takes the colour.
func TestTheCheckOnATerminal(t *testing.T) {
	p := newPlace(t)
	for _, c := range []struct {
		env    string
		colour bool
	}{{"NO_COLOR=", true}, {"NO_COLOR=1", false}} {
		term := onTerminal(t, p.botbox([]string{"TERM=xterm", c.env}, "check"))
		term.expect("29/29 checks passed")
		if status := term.status(); status != 0 {
			t.Errorf("%s: status %d", c.env, status)
		}
		for _, want := range []string{"29 of 29 checks", "mounts", "D7"} {
			if !strings.Contains(term.all.String(), want) {
				t.Errorf("%s: no %q in %q", c.env, want, term.all.String())
			}
		}
		if strings.Contains(term.all.String(), "\x1b[32m") != c.colour {
			t.Errorf("%s: %q", c.env, term.all.String())
		}
	}
}

// A CI system reads the same results: what fails for us fails there.
func TestTheCheckForCI(t *testing.T) {
	p := newPlace(t)
	file := filepath.Join(p.work, "junit.xml")
	out := rig.Run(t, p.botbox(nil, "check", "--mutate", "tmp-shared", "--junit", file))
	if out.Code != 1 || strings.ContainsAny(out.Stdout+out.Stderr, "\x1b\r") || out.Stderr != "" {
		t.Fatalf("%+v", out)
	}
	for _, want := range []string{"T1 did not hold: ", "   means: ", "   do:    ", "botbox why check T1", "declared to fail: T1 T2\n", "27/29 checks passed\n"} {
		if !strings.Contains(out.Stdout, want) {
			t.Errorf("no %q in %s", want, out.Stdout)
		}
	}
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Cases    []struct {
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
		} `xml:"testcase"`
	}
	text, err := os.ReadFile(file)
	if err != nil || xml.Unmarshal(text, &suite) != nil || suite.Tests != 29 || suite.Failures != 2 || suite.Errors != 0 || len(suite.Cases) != 29 {
		t.Fatalf("%v %+v\n%s", err, suite, text)
	}
	for _, c := range suite.Cases {
		if (c.Failure != nil) != (c.Name == "T1" || c.Name == "T2") {
			t.Errorf("%s: %+v", c.Name, c.Failure)
		}
	}
	if out := rig.Run(t, p.botbox(nil, "check", "--junit", filepath.Join(p.work, "none/x.xml"))); out.Code != 100 || out.Stdout != "" {
		t.Errorf("a place that is none: %+v", out)
	}
}

// Without a worker, too, the check must not say that a layer is missing here
// that is there.
func TestTheCheckTellsOfLandlock(t *testing.T) {
	p := newPlace(t)
	out := rig.Run(t, p.botbox(nil, "check", "--json"))
	var got struct{ Landlock *int }
	if err := json.Unmarshal([]byte(out.Stdout), &got); out.Code != 0 || err != nil || got.Landlock == nil || *got.Landlock != box.Landlock() {
		t.Errorf("this kernel has version %d: %v %+v", box.Landlock(), err, out)
	}
}
