package selfcheck

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/report"

	"github.com/openmausbot/botbox/testbed/rig"
)

// These tests run the built programs: real boxes, by an ordinary user.

// mutated is what each mutation must break, written down a second time so that
// a row of the probe's table cannot change its mind alone.
var mutated = map[string]string{
	"bind-data":  "D1 D2 D3 D4 D5 D6 D7",
	"share-pid":  "P1 P2 P3 P4",
	"share-net":  "N1 N2 N3 N4 N5",
	"env-all":    "E1 E2 E3",
	"tmp-shared": "T1 T2",
	"broker-off": "B1 B2 B3 B4 B5 B6",

	"writable-usr": "W1",
	"bind-home":    "W1",
	"no-work":      "W2",

	"no-egress":          "W2",
	"egress-open":        "W2",
	"no-harness":         "N2",
	"harness-open":       "N2",
	"listener-released":  "N2",
	"broker-open":        "B5",
	"broker-any-grant":   "B6",
	"broker-passthrough": "B4",
}

// checked runs `botbox check --json` where boxes can be made, and holds it to
// leaving nothing behind.
func checked(t *testing.T, dir string, who *syscall.SysProcAttr, words ...string) (report.Report, int) {
	t.Helper()
	before := litter(t)
	o := outcomeOf(t, botbox(t, dir, who, append([]string{"check", "--json"}, words...)...))
	leavesNothing(t, before)
	if len(o.Results) == 0 && (strings.Contains(o.said, "refused") || strings.Contains(o.said, "no-bwrap") || strings.Contains(o.said, "proc-masked")) {
		rig.Missing(t, "no box here: %s", o.said)
	}
	return o.Report, o.code
}

// outcome is how a self-check ended.
type outcome struct {
	report.Report        // without results when there were none; its warnings are then what was said
	code          int    // exit status
	said          string // on stderr
}

// outcomeOf runs a self-check that prints JSON, and holds it to what is true of
// every one: it is only ok when every check passed, and says why when there are
// no results.
func outcomeOf(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	o := outcome{code: cmd.ProcessState.ExitCode(), said: said.String()}
	if len(out) == 0 {
		o.Warnings = []string{o.said}
		if o.code == 0 || !strings.Contains(o.said, "reason: ") {
			t.Errorf("no results, exit %d: %q", o.code, o.said)
		}
		return o
	}
	if err := json.Unmarshal(out, &o.Report); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	passed := !slices.ContainsFunc(o.Results, func(r report.Result) bool { return r.Verdict != pass })
	if ok := o.code == 0; ok != passed || ok != (len(o.Failed) == 0) || len(o.Results) == 0 {
		t.Errorf("exit %d, failed %v, %d results, all passed: %v", o.code, o.Failed, len(o.Results), passed)
	}
	return o
}

// leavesNothing waits until whatever was new is gone. Another self-check may
// run on this machine: its folders go too.
func leavesNothing(t *testing.T, before map[string]bool) {
	t.Helper()
	after := litter(t)
	living := orphans(t)
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for name := range after {
			if _, err := os.Lstat(name); err != nil || before[name] {
				delete(after, name)
			}
		}
		if living = orphans(t); len(living) == 0 && len(after) == 0 {
			return
		}
	}
	t.Errorf("left behind: processes %q, folders %v", living, slices.Collect(maps.Keys(after)))
}

func TestEveryCheckPasses(t *testing.T) {
	for name, who := range map[string]*syscall.SysProcAttr{"as the caller": nil, "as an ordinary user": rig.Ordinary(t)} {
		for profile, least := range map[string]int{"seed": 29, "full": 129} {
			t.Run(name+" "+profile, func(t *testing.T) {
				r, code := checked(t, built(t), who, "--profile", profile)
				if code != 0 || len(r.Failed) != 0 || len(r.Results) < least || (profile == "seed" && r.Checks != "29/29") {
					t.Errorf("exit %d, %s, failed %v %v", code, r.Checks, r.Failed, r.Warnings)
				}
				if r.Profile != profile || r.AgeS == nil || len(r.Declared) != 0 {
					t.Errorf("profile %q, age %v, declared %v", r.Profile, r.AgeS, r.Declared)
				}
			})
		}
	}
}

func TestEveryMutationFailsItsChecksAndNoOther(t *testing.T) {
	cores := rig.CoreFiles(t)
	var lists []string
	for _, name := range mutationNames() {
		if mutated[name]+mutatedFull[name]+mutatedUse[name] == "" {
			t.Errorf("nothing is declared for %s", name)
		}
		lists = append(lists, name)
	}
	together := slices.DeleteFunc(mutationNames(), func(name string) bool {
		return slices.ContainsFunc(contradictory, func(pair [2]string) bool { return pair[1] == name })
	})
	lists = append(lists, "bind-data,share-pid", "share-net,broker-off", strings.Join(together, ","))
	for _, list := range lists {
		for _, profile := range []string{"seed", "full"} {
			if profile == "seed" && mutated[list] == "" && !strings.Contains(list, ",") {
				continue // what it breaks is no check of the seed's
			}
			t.Run(list+" "+profile, func(t *testing.T) { underMutation(t, list, profile, list != "core-on" || cores) })
		}
	}
}

// underMutation: shows says that this machine has what the mutation takes away.
func underMutation(t *testing.T, list, profile string, shows bool) {
	r, code := checked(t, built(t), rig.Ordinary(t), "--mutate", list, "--profile", profile)
	failed := slices.Sorted(slices.Values(r.Failed))
	if (code == 1) != shows || (len(failed) > 0) != shows || !slices.Equal(failed, r.Declared) {
		t.Errorf("exit %d, failed %v, declared %v %v", code, failed, r.Declared, r.Warnings)
	}
	for _, res := range r.Results {
		// Without a base URL the broker's checks have nothing to try, and a gate
		// that answers nobody refuses nobody.
		if res.Verdict == inconclusive && !strings.HasPrefix(res.ID, "B") && !silencesGate(list) {
			t.Errorf("%s is inconclusive: %s", res.ID, res.Why)
		}
	}
	var want []string
	here := seen(t)
	tried := func(id string) bool {
		return slices.ContainsFunc(r.Results, func(r report.Result) bool { return r.ID == id })
	}
	for name := range strings.SplitSeq(list, ",") {
		for id := range strings.FieldsSeq(mutated[name] + " " + mutatedFull[name] + " " + mutatedUse[name]) {
			if tried(id) && !here.nothing(id, name) {
				want = append(want, id)
			}
		}
	}
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(r.Declared, want) {
		t.Errorf("declared %v, want %v", r.Declared, want)
	}
}

func silencesGate(list string) bool {
	return strings.Contains(list, "no-egress") || strings.Contains(list, "no-harness") || strings.Contains(list, "listener-released")
}

// seen is what this machine has that a mutation could take away: a network,
// Landlock, core files, keyrings.
func seen(t *testing.T) *outside {
	t.Helper()
	o := &outside{spawner: box.NewSpawner(), fixture: fixture{Marker: "seen"}}
	defer o.spawner.Close()
	if err := errors.Join(o.lookAround(), o.lookAtSelf(), o.plantSessionKey()); err != nil {
		t.Fatal(err)
	}
	o.Landlock, o.CPUFiles = box.Landlock(), box.LookAt("", "/nonexistent", "/nonexistent").CPUFiles
	return o
}

// TestHiddenProcessesAreNotAbsent: a hardened machine mounts /proc so that a
// process in another user namespace is not shown. A shared process namespace
// must be found out all the same.
func TestHiddenProcessesAreNotAbsent(t *testing.T) {
	if os.Getuid() != 0 {
		rig.Missing(t, "only root mounts a /proc in a namespace of its own")
	}
	for mutation, want := range map[string]string{"": "", "share-pid": "P1 P2 P3 P4"} {
		script := "mount -o remount,hidepid=invisible /proc && exec " + filepath.Join(built(t), "botbox") + " check --json --mutate '" + mutation + "'"
		cmd := exec.Command("unshare", "--pid", "--fork", "--mount", "--mount-proc", "sh", "-c", script)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if len(out) == 0 {
			rig.Missing(t, "%v: %s", err, said.String())
		}
		var r report.Report
		if err := json.Unmarshal(out, &r); err != nil || strings.Join(r.Failed, " ") != want {
			t.Errorf("%s: failed %v, want %s; %v", mutation, r.Failed, want, err)
		}
	}
}

func TestUnknownWishes(t *testing.T) {
	for _, words := range [][]string{{"--mutate", "no-such-thing"}, {"--profile", "no-such-thing"}} {
		r, code := checked(t, built(t), nil, words...)
		if code != 100 || !strings.Contains(strings.Join(r.Warnings, ""), `"no-such-thing"`) {
			t.Errorf("%v: exit %d, %q", words, code, r.Warnings)
		}
	}
}

// TestProbeThatDoesNotComeBack gives the self-check probes that are stopped
// midway, that lie or that do not end as they should. None of what they say of
// D1, which is that it passed, may count but for the one that ends properly.
func TestProbeThatDoesNotComeBack(t *testing.T) {
	for behaviour, failed := range map[string]int{
		"killed": 29, "no-last-line": 29, "miscounts": 29, "fails": 29, "goes-on": 29, "floods": 29, "short": 28,
		"repeats": 29, "invents-a-check": 29, "other-profile": 29, "invents-a-verdict": 29, "half-a-line": 29,
		"two-in-a-line": 29, "one-huge-line": 29, "ends-twice": 29,
	} {
		t.Run(behaviour, func(t *testing.T) {
			r, code := checked(t, withProbe(t, behaviour), rig.Ordinary(t))
			if code != 1 || len(r.Results) != 29 || len(r.Failed) != failed {
				t.Errorf("exit %d, failed %v of %d %v", code, r.Failed, len(r.Results), r.Warnings)
			}
			for _, res := range r.Results {
				if res.Verdict != inconclusive && res.ID != "D1" || res.Verdict == inconclusive && res.Why == "" {
					t.Errorf("%s: %s, %q", res.ID, res.Verdict, res.Why)
				}
			}
		})
	}
	for _, behaviour := range []string{"killed", "half-a-line", "no-last-line"} {
		t.Run(behaviour+" full", func(t *testing.T) { // what others look at does not count either
			r, code := checked(t, withProbe(t, behaviour), rig.Ordinary(t), "--profile", "full")
			if code != 1 || len(r.Results) < 40 || len(r.Failed) != len(r.Results) {
				t.Errorf("exit %d, failed %d of %d %v", code, len(r.Failed), len(r.Results), r.Warnings)
			}
		})
	}
	t.Run("other-build", func(t *testing.T) {
		r, code := checked(t, withProbe(t, "other-build"), rig.Ordinary(t))
		if code != 100 || !strings.Contains(strings.Join(r.Warnings, ""), "version-skew") {
			t.Errorf("exit %d, %q", code, r.Warnings)
		}
	})
}

// A probe that does nothing and says in due form that all is well is found out
// by what did not happen outside: no route was asked for, nothing was written,
// no provider was called.
func TestProbeThatClaimsAll(t *testing.T) {
	for _, profile := range []string{"seed", "full"} {
		r, code := checked(t, withProbe(t, "claims-all"), rig.Ordinary(t), "--profile", profile)
		if code != 1 {
			t.Errorf("%s: exit %d, %s, %v", profile, code, r.Checks, r.Warnings)
		}
		for _, id := range []string{"N2", "W2", "B4", "B5", "B6"} {
			if !slices.Contains(r.Failed, id) {
				t.Errorf("%s: %s is believed; failed are %v", profile, id, r.Failed)
			}
		}
	}
}

// withProbe is a folder of the programs with another boxprobe.
func withProbe(t *testing.T, behaviour string) string {
	t.Helper()
	dir := openFolder(t)
	for _, name := range []string{"botbox", "boxentry"} {
		text, err := os.ReadFile(filepath.Join(built(t), name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for _, r := range probesTable(t) {
		if r.Profile == seed {
			r.ID += "*"
		}
		ids = append(ids, r.ID)
	}
	link := "-X main.behaviour=" + behaviour + " -X main.real=" + filepath.Join(built(t), "boxprobe") + " -X main.ids=" + strings.Join(ids, ",")
	if err := compile(filepath.Join(dir, "boxprobe"), "./testdata/probe", link); err != nil {
		t.Fatal(err)
	}
	return dir
}

// held lists the self-check's folders that a process has open.
func held(t *testing.T, pid int) map[string]bool {
	t.Helper()
	links, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd/*"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil && strings.HasPrefix(filepath.Base(name), prefix) {
			all[name] = true
		}
	}
	return all
}

// hanging starts a self-check whose probe hangs in its box, by an ordinary
// user, and gives it when it does.
func hanging(t *testing.T, dir string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	before := litter(t)
	cmd := botbox(t, dir, rig.Ordinary(t), "check")
	said := &strings.Builder{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	hangs := func() bool {
		for name := range litter(t) {
			if _, err := os.Lstat(filepath.Join(name, "work/hangs")); err == nil && !before[name] {
				return true
			}
		}
		return false
	}
	for deadline := time.Now().Add(20 * time.Second); !hangs(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			cmd.Process.Kill()
			cmd.Wait()
			rig.Missing(t, "the probe never came into a box: %s", said.String())
		}
	}
	return cmd, said
}

func TestSignalEndsItAndLeavesNothing(t *testing.T) {
	dir := withProbe(t, "hangs")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		before := litter(t)
		cmd, said := hanging(t, dir)
		cmd.Process.Signal(sig)
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 111 || !strings.Contains(said.String(), "told to stop") {
			t.Errorf("%v: exit %d: %s", sig, code, said.String())
		}
		leavesNothing(t, before)
	}
}

// What a killed run leaves is removed by the next, while the folders of one
// that lives stay.
func TestTheNextRunRemovesWhatAKilledOneLeft(t *testing.T) {
	dir := withProbe(t, "hangs")
	before := litter(t)
	killed, _ := hanging(t, dir)
	killed.Process.Kill()
	killed.Wait()
	left := litter(t)
	maps.DeleteFunc(left, func(name string, _ bool) bool { return before[name] })
	if len(left) < 4 {
		t.Fatalf("control: a killed run left %v", left)
	}
	living, _ := hanging(t, dir)
	its := held(t, living.Process.Pid) // another run on this machine may come and go
	if text, err := botbox(t, built(t), rig.Ordinary(t), "check").CombinedOutput(); err != nil {
		t.Errorf("the next run: %v: %s", err, text)
	}
	for name := range left {
		if _, err := os.Lstat(name); !os.IsNotExist(err) {
			t.Errorf("%s of the killed run: %v", name, err)
		}
	}
	for name := range its {
		if _, err := os.Lstat(name); err != nil {
			t.Errorf("of the living run: %v", err)
		}
	}
	if len(its) < 4 {
		t.Errorf("control: the living run has %v", its)
	}
	living.Process.Signal(syscall.SIGTERM)
	living.Wait()
	leavesNothing(t, before)
}
