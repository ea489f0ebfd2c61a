package main

import (
	"fmt"
	"time"
)

// Check is one row of the table: one attempt.
type Check struct {
	ID       string   `json:"id"`
	Layer    string   `json:"layer"`
	Profile  string   `json:"profile"` // seed, or full
	Tries    string   `json:"tries"`
	Expect   string   `json:"expect"`
	BrokenBy []string `json:"broken_by"` // the mutations that must make it fail; if none, see unbroken
	Control  string   `json:"control"`
	// Do is the attempt; nil in a row that botbox check tries from outside.
	Do func(*Fixture) Result `json:"-"`
}

// Listed is a row as --list prints it.
type Listed struct {
	Check
	Outside bool `json:"outside"` // botbox check tries it, and no probe in a box reports it
}

func listing() (all []Listed) {
	for _, c := range table() {
		all = append(all, Listed{c, c.Do == nil})
	}
	return all
}

// The profiles. A run of full has the checks of seed in it.
const (
	seed = "seed"
	full = "full"
)

// The layers that checks belong to.
const (
	mounts     = "mounts"
	pidNS      = "pid-namespace"
	netNS      = "network-namespace"
	environ    = "environment"
	privateTmp = "private-tmp"
	writable   = "writable-folders"
	broker     = "broker"
	filter     = "seccomp"
	privileges = "privileges"
	limits     = "limits"
	wall       = "landlock"
	worker     = "worker"
)

// Verdict is the outcome of a check.
type Verdict string

// The verdicts. Only pass is good.
const (
	Pass         Verdict = "pass"
	Fail         Verdict = "fail"
	Inconclusive Verdict = "inconclusive"
)

// Result is a verdict and what it rests on: one sentence, without secrets.
type Result struct {
	Verdict Verdict
	Why     string
	late    bool // it did not come back in time, and may still be at work
}

func pass(format string, args ...any) Result {
	return Result{Verdict: Pass, Why: fmt.Sprintf(format, args...)}
}
func fail(format string, args ...any) Result {
	return Result{Verdict: Fail, Why: fmt.Sprintf(format, args...)}
}
func unclear(format string, args ...any) Result {
	return Result{Verdict: Inconclusive, Why: fmt.Sprintf(format, args...)}
}

// worst gives the first result that is not a pass, fail before inconclusive,
// or the last one.
func worst(results ...Result) Result {
	for _, bad := range []Verdict{Fail, Inconclusive} {
		for _, r := range results {
			if r.Verdict == bad {
				return r
			}
		}
	}
	if len(results) == 0 {
		return unclear("the fixture names nothing to try")
	}
	return results[len(results)-1]
}

// timeout bounds one check. Searching files takes longest.
const timeout = 5 * time.Second

// run does one check. One that panics, or takes too long, is inconclusive.
func run(c Check, f *Fixture, limit time.Duration) Result {
	done := make(chan Result, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- unclear("the check itself failed: %v", p)
			}
		}()
		done <- c.Do(f)
	}()
	select {
	case r := <-done:
		return r
	case <-time.After(limit):
		r := unclear("no outcome within %v", limit)
		r.late = true
		return r
	}
}

// beside judges a result while an earlier check has not come back: what that
// one still does, such as to use the box's processes up, may be the cause of a
// failure. Nothing becomes ok by it.
func beside(late string, r Result) Result {
	if late == "" || r.Verdict != Fail {
		return r
	}
	return unclear("%s; but %s has not come back, and may be the cause", r.Why, late)
}

// table lists every check, in the order in which they run.
func table() []Check {
	var all []Check
	for _, part := range [][]Check{
		fileChecks(), pidChecks(), netChecks(), envChecks(), tmpChecks(), writeChecks(), brokerChecks(),
		fileExtras(), pidExtras(), syscallExtras(), limitExtras(), landlockExtras(),
		kernelChecks(), foreignChecks(), reachChecks(), gateChecks(), misuseChecks(), resourceChecks(),
		fileRows(), socketRows(), processRows(), environmentRows(), outsideRows(),
	} {
		all = append(all, part...)
	}
	return all
}
