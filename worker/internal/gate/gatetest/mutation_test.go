package gatetest_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// mutation takes one rule out of the gates. The compiler reads the edited
// files in place of the real ones, so no program of ours has a switch for it.
type mutation struct {
	name  string
	edits []rig.Edit // in files of package gate and below
	fails []string   // package.Test, exactly
}

var mutations = []mutation{
	{name: "none"},
	{
		name:  "policy-off",
		edits: []rig.Edit{{"judge.go", "!v.Allowed {", "!v.Allowed && false {"}},
		fails: []string{
			"egress.TestClientsShowTheReason", "egress.TestProbes",
			"gate.TestEveryTableRowIsRefusedAsLiteralAndAsAnswer", "gate.TestExceptionLiftsTheAddressPolicyOnly",
			"gate.TestLearningLiftsListsOnly", "gate.TestLists", "gate.TestNoResolverOracle", "gate.TestPrefixMatrix", "gate.TestRebinding",
			"socks.TestCurl", "socks.TestTheAddressPolicy",
		},
	},
	{
		name: "own-addr-off",
		edits: []rig.Edit{
			{"judge.go", "case kind != unicast:", "case kind != unicast && false:"},
			{"dialer.go", "addrOf(t.RemoteAddr()) == addrOf(t.LocalAddr())", "false"},
		},
		fails: []string{"egress.TestPublicNeighbour", "gate.TestOpinionOfOwnAddresses", "gate.TestOwnAddresses", "gate.TestPublicNeighbour", "gate.TestRebinding", "socks.TestPublicNeighbour"},
	},
	{
		name: "dial-by-name",
		edits: []rig.Edit{
			{"dialer.go", "c, err := d.race(ctx, targets)", `if h.Name == "" {
	} else if again, r := d.lookup(ctx, h.Name); r == nil {
		ap := netip.AddrPortFrom(again[0].Unmap(), h.Port)
		if d.dialing != nil {
			d.dialing(ap)
		}
		if c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(ap)); err == nil {
			d.Learn.reached(h)
			return c, nil
		}
		return nil, unreachable()
	}
	c, err := d.race(ctx, targets)`},
		},
		fails: []string{"egress.TestProbes", "gate.TestPrefixMatrix", "gate.TestPublicNeighbour", "gate.TestRebinding", "socks.TestATunnel"},
	},
	{
		name:  "prefix-raw",
		edits: []rig.Edit{{"harness/target.go", "!plainPath(path)", "false"}},
		fails: []string{"harness.TestCorpus", "harness.TestNodeReadsWhatWasJudged", "harness.TestNodeServer"},
	},
}

// timed are tests of time and load, which say nothing of a rule.
const timed = "Soak|Idle|Busy|Slow|Lookup|Descriptors"

// Each mutation fails the tests that are there for it, and no other. They run
// in a network namespace with a loopback and nothing else, for a gate without
// its policy would dial anything.
func TestMutations(t *testing.T) {
	gates := filepath.Join(rig.Root(), "worker/internal/gate")
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			got := run(t, gates, rig.Overlay(t, gates, m.edits))
			slices.Sort(m.fails)
			if !slices.Equal(got, m.fails) {
				t.Errorf("these tests fail:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(m.fails, "\n"))
			}
		})
	}
}

// run gives the tests of the gates that fail, as package.Test.
func run(t *testing.T, gates, overlay string) (failed []string) {
	t.Helper()
	args := []string{"-rn"}
	if os.Geteuid() == 0 {
		args = []string{"-n"}
	}
	args = append(args, "sh", "-c", `ip link set lo up && exec go test -count=1 -timeout 60s -json -run ^Test -skip "$2" -overlay "$1" . ./egress ./socks ./harness ./http1`, "sh", overlay, timed)
	cmd := exec.Command("unshare", args...)
	cmd.Dir = gates
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "BOTBOX_MUST_RUN=1")
	out, err := cmd.Output() // it fails where a test does
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	passed := 0
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		var e struct{ Action, Package, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		switch {
		case e.Action == "build-output":
			t.Error(e.Output)
		case e.Test == "" || strings.Contains(e.Test, "/"):
		case e.Action == "fail":
			failed = append(failed, filepath.Base(e.Package)+"."+e.Test)
		case e.Action == "pass":
			passed++
		}
	}
	if passed < 30 {
		t.Fatalf("only %d tests pass: %s", passed, out)
	}
	slices.Sort(failed)
	return failed
}
