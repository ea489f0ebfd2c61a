package selfcheck

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/report"

	"github.com/openmausbot/botbox/testbed/rig"
)

// These tests attack the self-check itself: outcomeOf holds each of its runs
// to saying ok only when every check passed.

// harmed is the product with a self-check that loses one of the things outside
// that its controls rest on, when HARM names it and the moment, and that gives
// its probe less time.
var harmed = []rig.Edit{
	{"worker/internal/selfcheck/run.go", "	dead := e.dead(before)\n", "	v.harm(\"early\")\n	dead := e.dead(before)\n	v.harm(\"between\")\n"},
	{"worker/internal/selfcheck/run.go", "	if err := checkBuild(out.build); err != nil {", "	v.harm(\"late\")\n	if err := checkBuild(out.build); err != nil {"},
	{"worker/internal/selfcheck/run.go", "const within = 30 * time.Second", "const within = 4 * time.Second"},
	{"worker/internal/selfcheck/run.go", "// attend runs the box to its end.", `func (v *visit) harm(moment string) {
	what, when, _ := strings.Cut(os.Getenv("HARM"), " ")
	if when != moment {
		return
	}
	switch what {
	case "server":
		v.server.Close()
	case "provider":
		v.provider.Close()
	case "socket":
		v.socket.listener.Close()
	case "loopback":
		v.loopback.listener.Close()
	case "nearby":
		v.nearby.listener.Close()
	case "canary":
		v.canary.Kill()
		v.canary.Wait()
	case "database":
		os.Remove(v.Database)
	case "tmp":
		os.RemoveAll(filepath.Dir(v.TmpFile))
	default:
		panic(what)
	}
}

// attend runs the box to its end.`},
	{"worker/internal/selfcheck/run.go", "	\"os\"\n", "	\"os\"\n	\"path/filepath\"\n	\"strings\"\n"},
}

// What a check's pass rests on may go at any moment: before the controls,
// between them and the probe, and after the probe. The check that rests on it
// has not passed then.
func TestWhatTheControlsRestOnGoes(t *testing.T) {
	dir := broken(t, harmed)
	run := func(harm string) outcome {
		t.Helper()
		before := litter(t)
		cmd := botbox(t, dir, rig.Ordinary(t), "check", "--json", "--profile", "full")
		cmd.Env = append(cmd.Env, "HARM="+harm)
		o := outcomeOf(t, cmd)
		leavesNothing(t, before)
		return o
	}
	if o := run(""); o.code != 0 {
		t.Fatalf("control: without harm: %+v", o)
	}
	for what, c := range map[string]struct {
		ids  string
		late bool // its going afterwards takes something back, too
	}{
		"server": {"N2", false}, "provider": {"B4 B5 B6", false}, "socket": {"D4", true}, "loopback": {"N1", true},
		"nearby": {"N3", true}, "canary": {"P1 P2 P3", true}, "database": {"D1", true}, "tmp": {"T1", true},
	} {
		for _, when := range []string{"early", "between", "late"} {
			if when == "late" && !c.late {
				continue // it was asked while it was there
			}
			o := run(what + " " + when)
			for id := range strings.FieldsSeq(c.ids) {
				i := slices.IndexFunc(o.Results, func(r report.Result) bool { return r.ID == id })
				if o.code != 1 || i < 0 || o.Results[i].Verdict == pass || o.Results[i].Why == "" {
					t.Errorf("%s %s: exit %d, failed %v, %s is not among them or says no reason", what, when, o.code, o.Failed, id)
				}
			}
		}
	}
}

// A process of the run that is killed, or stopped for good, at any moment
// leaves no pass behind that it would have to vouch for.
func TestARunThatLosesAProcess(t *testing.T) {
	dir := broken(t, harmed)
	for _, c := range []struct {
		what   string
		words  func(cmdline string) bool
		signal unix.Signal
		times  int
		all    bool // every check is then inconclusive
	}{
		{"the probe", starts(probePath), unix.SIGKILL, 8, true},
		{"the probe, stopped", starts(probePath), unix.SIGSTOP, 1, true},
		{"boxentry", starts(box.EntryPath), unix.SIGKILL, 3, true},
		{"bubblewrap", func(words string) bool { return strings.Contains(words, "bwrap\x00--args") }, unix.SIGKILL, 4, true},
		{"the canary", func(words string) bool { return strings.HasPrefix(words, "boxprobe\x00canary\x00canary-") }, unix.SIGKILL, 4, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			hit := 0
			// boxentry lives for some milliseconds only, and is often missed.
			for run := 0; run < c.times || hit == 0 && run < 10*c.times; run++ {
				before := litter(t)
				cmd := botbox(t, dir, rig.Ordinary(t), "check", "--json", "--profile", "full")
				over := make(chan bool)
				var losing sync.WaitGroup
				losing.Go(func() { lose(over, c.words, c.signal, rand.N(100*time.Millisecond)) })
				o := outcomeOf(t, cmd)
				close(over)
				losing.Wait()
				leavesNothing(t, before)
				if o.code == 0 {
					continue // it was over before
				}
				hit++
				for _, r := range o.Results {
					if r.Verdict == fail || c.all && r.Verdict == pass || r.Verdict != pass && r.Why == "" {
						t.Errorf("%+v", r)
					}
				}
				if !c.all && !slices.Contains(o.Failed, "P3") {
					t.Errorf("failed %v, P3 not among them", o.Failed)
				}
			}
			if hit == 0 {
				t.Errorf("control: none of %d runs lost it in time", 10*c.times)
			}
		})
	}
}

func starts(first string) func(string) bool {
	return func(words string) bool { return strings.HasPrefix(words, first+"\x00") }
}

// lose waits until one of our processes has these words, and a moment more, and
// signals it.
func lose(over <-chan bool, words func(string) bool, sig unix.Signal, moment time.Duration) {
	for {
		for _, pid := range below(os.Getpid()) {
			if text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); words(string(text)) {
				time.Sleep(moment)
				unix.Kill(pid, sig)
				return
			}
		}
		select {
		case <-over:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// below lists the processes that a process has started, and those that they
// have.
func below(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for word := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(append(all, child), below(child)...)
			}
		}
	}
	return all
}

// A process with too few files left says so, and that it is not ok.
func TestARunWithFewFiles(t *testing.T) {
	before := litter(t)
	good := 0
	for _, n := range []int{20, 28, 36, 44, 52, 64, 96, 192, 512, 1024} {
		cmd := botbox(t, built(t), rig.Ordinary(t))
		script := fmt.Sprintf("ulimit -n %d && exec %s check --json --profile full", n, cmd.Path)
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", script}
		o := outcomeOf(t, cmd)
		switch {
		case o.code == 0:
			good++
		case len(o.Results) == 0 && !strings.Contains(o.said, "too many open files"):
			t.Errorf("%d files: exit %d: %s", n, o.code, o.said)
		case good > 0:
			t.Errorf("%d files do not suffice, fewer do: %+v", n, o)
		}
	}
	if good == 0 {
		t.Error("control: 1024 files do not suffice")
	}
	leavesNothing(t, before)
}

// Runs at once, beside boxes that live: none disturbs another, whatever it
// takes away from itself, and the boxes live on.
func TestRunsAtOnceBesideBoxes(t *testing.T) {
	before := litter(t)
	var boxes []*exec.Cmd
	for range 3 {
		cmd := botbox(t, built(t), rig.Ordinary(t), "run", "--standalone", "--cwd", "/tmp", "--", "sh", "-c", "echo lives; read x; echo $x")
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR=/nonexistent")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		word := make([]byte, 6)
		if _, err := out.Read(word); err != nil || string(word) != "lives\n" {
			t.Fatalf("no box: %v", err)
		}
		boxes = append(boxes, cmd)
		defer func() {
			fmt.Fprintln(in, "on")
			in.Close()
			rest := make([]byte, 16)
			n, _ := out.Read(rest)
			if err := cmd.Wait(); err != nil || string(rest[:n]) != "on\n" {
				t.Errorf("a box beside them ended with %v after %q", err, rest[:n])
			}
		}()
	}
	var runs sync.WaitGroup
	for _, mutate := range []string{"", "", "share-net", "bind-data,tmp-shared"} {
		runs.Go(func() {
			o := outcomeOf(t, botbox(t, built(t), rig.Ordinary(t), "check", "--json", "--profile", "full", "--mutate", mutate))
			failed := slices.Sorted(slices.Values(o.Failed))
			if !slices.Equal(failed, o.Declared) || (o.code == 0) != (mutate == "") {
				t.Errorf("%s: exit %d, failed %v, declared %v; %v", mutate, o.code, failed, o.Declared, o.Warnings)
			}
		})
	}
	runs.Wait()
	for _, cmd := range boxes {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("a box beside them: %v", err)
		}
	}
	// Another's check on this machine has folders, too, for a second.
	rig.Eventually(t, 10*time.Second, "what the checks made is gone", func() bool {
		for name := range litter(t) {
			if _, err := os.Lstat(name); err == nil && !before[name] {
				return false
			}
		}
		return true
	})
}
