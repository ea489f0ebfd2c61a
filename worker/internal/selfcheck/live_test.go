package selfcheck

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	"share-pid":  "P1 P2 P3 P4 P07 L04",
	"share-net":  "N1 N2 N3 N4 N5 N02 N04 N07 N09 N15 N16 N17 P07",
	"env-all":    "E1 E2 E3",
	"tmp-shared": "T1 T2",
	"broker-off": "B1 B2 B3 B4 B5 B6 B07 B08 B09 B10 B11 B12 B13 B14",

	"no-landlock": "S15 S16",
	"no-limits":   "L01 L02 L03 L05 L06 L07",

	"seccomp-off":       "S01 S02 S03 S04 S05 S07 S08 S09 S10 S11 S12 S13 S17 S18 N06 P10",
	"seccomp-seed-only": "S02 S03 S04 S05 S11 S12 S13 S17 S18 N06 P10",
	"no-arch-kill":      "S07",
	"no-x32-kill":       "S08",
	"allow-mount":       "S01",
	"allow-keyring":     "S01 S10",
	"allow-uring":       "S02 S03",
	"clone3-eperm":      "S02 S04",
	"vsock-allowed":     "S11 N06",
	"netlink-open":      "S12",
	"pairs-open":        "S18",
	"old-personality":   "S13",
	"no-tty-rule":       "P10",
	"allow-userns":      "S05 S06 S17",
	"deny-too-much":     "S14",

	"no-egress":            "W2 N10 N11 N12 N13 N19 N20",
	"egress-open":          "W2 N11 N12 N19 N20",
	"egress-resolve-twice": "N12",
	"no-conn-cap":          "N13",
	"no-harness":           "N2 N14 N15",
	"harness-open":         "N2 N15",
	"listener-released":    "N2 N08 N09 N14 N15",
	"no-relay":             "N17",
	"keep-score":           "L04",
	"broker-open":          "B5",
	"broker-any-grant":     "B6",
	"broker-host":          "B07",
	"broker-no-revoke":     "B08",
	"broker-reflect":       "B09",
	"broker-unbound":       "B10",
	"broker-any-path":      "B11",
	"broker-any-method":    "B12",
	"broker-follow":        "B13",
	"broker-pathless":      "B14",
	"broker-passthrough":   "B4",
}

// ofSeed are the checks of the seed's profile among some.
func ofSeed(ids string) []string {
	return slices.DeleteFunc(strings.Fields(ids), func(id string) bool { return len(id) > 2 }) // those of full have two digits
}

// checked runs `botbox check --json` and holds it to leaving nothing behind.
func checked(t *testing.T, dir string, who *syscall.SysProcAttr, words ...string) (report.Report, int) {
	t.Helper()
	before := litter(t)
	cmd := botbox(t, dir, who, append([]string{"check", "--json"}, words...)...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	code := cmd.ProcessState.ExitCode()
	leavesNothing(t, before)
	var r report.Report
	if len(out) > 0 {
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatalf("%v in %q", err, out)
		}
		return r, code
	}
	text := said.String()
	if strings.Contains(text, "refused") || strings.Contains(text, "no-bwrap") || strings.Contains(text, "proc-masked") {
		rig.Missing(t, "no box here: %s", text)
	}
	return report.Report{Warnings: []string{text}}, code
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
		for profile, least := range map[string]int{"seed": 29, "full": 86} {
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
	var lists []string
	for _, name := range mutationNames() {
		if mutated[name] == "" {
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
			if alone, ok := mutated[list]; ok && profile == "seed" && len(ofSeed(alone)) == 0 {
				continue // what it breaks is no check of the seed's
			}
			t.Run(list+" "+profile, func(t *testing.T) { underMutation(t, list, profile) })
		}
	}
}

func underMutation(t *testing.T, list, profile string) {
	r, code := checked(t, built(t), rig.Ordinary(t), "--mutate", list, "--profile", profile)
	failed := slices.Sorted(slices.Values(r.Failed))
	if code != 1 || len(failed) == 0 || !slices.Equal(failed, r.Declared) {
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
	for name := range strings.SplitSeq(list, ",") {
		ids := strings.Fields(mutated[name])
		if profile == "seed" {
			ids = ofSeed(mutated[name])
		}
		want = append(want, slices.DeleteFunc(ids, func(id string) bool { return here.nothing(id, name) })...)
	}
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(r.Declared, want) {
		t.Errorf("declared %v, want %v", r.Declared, want)
	}
}

func silencesGate(list string) bool {
	return strings.Contains(list, "no-egress") || strings.Contains(list, "no-harness") || strings.Contains(list, "listener-released")
}

// seen is what this machine has that a mutation could show.
func seen(t *testing.T) *outside {
	o := &outside{spawner: box.NewSpawner(), fixture: fixture{Marker: "seen"}}
	defer o.spawner.Close()
	if err := errors.Join(o.lookAround(), o.plantSessionKey()); err != nil {
		t.Fatal(err)
	}
	o.Landlock = box.Landlock()
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
	} {
		t.Run(behaviour, func(t *testing.T) {
			r, code := checked(t, withProbe(t, behaviour), rig.Ordinary(t))
			if code != 1 || len(r.Results) != 29 || len(r.Failed) != failed {
				t.Errorf("exit %d, failed %v of %d %v", code, r.Failed, len(r.Results), r.Warnings)
			}
			for _, res := range r.Results {
				if res.Verdict != inconclusive && res.ID != "D1" {
					t.Errorf("%s: %s", res.ID, res.Verdict)
				}
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

// withProbe is a folder of the programs with another boxprobe.
func withProbe(t *testing.T, behaviour string) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"botbox", "boxentry"} {
		text, err := os.ReadFile(filepath.Join(built(t), name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	link := "-X main.behaviour=" + behaviour + " -X main.real=" + filepath.Join(built(t), "boxprobe")
	if err := compile(filepath.Join(dir, "boxprobe"), "./testdata/probe", link); err != nil {
		t.Fatal(err)
	}
	return dir
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
	its := litter(t)
	maps.DeleteFunc(its, func(name string, _ bool) bool { return before[name] || left[name] })
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
