package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/posture"
	"github.com/openmausbot/botbox/testbed/rig"
)

// starter is the shell in its namespaces that becomes the supervisor, or starts
// it: what the two programs may have of their own is told from what it has.
type starter struct {
	*running
	before posture.Posture
	vars   []string // settings
}

// watchedWorld starts the real programs of a folder, after the starter's
// posture was taken.
func watchedWorld(t *testing.T, bin string, child bool, vars ...string) starter {
	t.Helper()
	// It waits in front of the supervisor's own start, so that the folders
	// that the test shares are there and nothing else is.
	r := realWorldOf(t, bin, child, append([]string{"WAIT=1"}, vars...))
	s := starter{running: r, vars: vars}
	var err error
	r.await(t, "the starter", func() bool {
		for _, pid := range append([]int{r.Process.Pid}, descendants(r.Process.Pid)...) {
			if strings.HasPrefix(read(fmt.Sprintf("/proc/%d/cmdline", pid)), "sh\x00") && read(r.out+"/waits") != "" {
				s.before, err = posture.Collect(pid)
				return err == nil && s.before.Fds["1"] != r.out+"/waits" // which the shell has for its stdout while it makes it
			}
		}
		return false
	})
	if err := os.WriteFile(r.out+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

// process finds the process with a text in its command line: the first, for a
// child of it that has not executed yet looks alike.
func (s starter) process(text string) int {
	for _, pid := range descendants(s.Process.Pid) {
		if line := read(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(line, text) && !strings.HasPrefix(line, "sh\x00") {
			return pid
		}
	}
	return 0
}

// record is all that a process may be, as far as it differs from its starter.
func (s starter) record(t *testing.T, worker bool) posture.Posture {
	want := posture.Posture{
		Status:     posture.Status{NoNewPrivs: true, Umask: 0o077, Seccomp: s.before.Seccomp},
		Limits:     maps.Clone(s.before.Limits),
		Namespaces: s.before.Namespaces,
		Mounts:     maps.Clone(s.before.Mounts),
		Fds:        map[string]string{"0": s.before.Fds["0"], "1": s.before.Fds["1"], "2": s.before.Fds["2"]},
	}
	// The Go runtime takes as many files as the hard limit gives it.
	files := strings.Fields(want.Limits["Max open files"])
	want.Limits["Max open files"] = files[1] + " " + files[1]
	for at, what := range want.Mounts {
		if fields := strings.Fields(what); fields[0] == "proc" && want.Mounts[at+"'"] == "" && !slices.Contains(s.vars, "OMB_CLOUD_HARDEN=0") { // one under another cannot be reached
			fields[4] += ",hidepid=invisible" // the options of the super block
			want.Mounts[at] = strings.Join(fields, " ")
		}
	}
	open := []string{s.out + "/run.ctl/to-worker (deleted)", s.out + "/run.ctl/from-worker (deleted)",
		"socket",                   // the vault's pair
		"anon_inode", "anon_inode", // the Go runtime's poller and what wakes it
	}
	if worker {
		id := account(t)
		u, g := int(id.UID), int(id.GID)
		want.UID, want.GID = [4]int{u, u, u, u}, [4]int{g, g, g, g}
		open = append(open, "socket", "socket", // lease.sock and api.sock
			s.out+"/state/botbox.db", s.out+"/state/audit.log", s.bin+"/boxentry", s.bin+"/boxprobe")
	} else {
		want.Groups, want.Permitted, want.Effective = s.before.Groups, 0xe0, 0xe0
	}
	switch users := slices.Contains(s.vars, "OMB_BOT_USERS=1"); {
	case users && worker:
		open = append(open, s.bin+"/botbox") // what makes a box's user namespace is started from it
	case users:
		open = append(open, s.out+"/state.ctl") // the folder of the table
	}
	for i, what := range open {
		want.Fds[strconv.Itoa(3+i)] = what
	}
	want.Fds = counted(want.Fds)
	return want
}

// counted turns fd → what into what → how often it is open: above stdio the
// numbers are what happened to be free. The quotas that the Go runtime reads on
// machines with cgroups of version 1 are the machine's business.
func counted(fds map[string]string) map[string]string {
	n := map[string]int{}
	for _, what := range fds {
		if !strings.HasPrefix(what, "/sys/fs/cgroup/") {
			n[what]++
		}
	}
	out := map[string]string{}
	for what, times := range n {
		out[what] = fmt.Sprint(times)
	}
	return out
}

// differences compares a process with its record: the names of the fields, and
// the lines.
func differences(want posture.Posture, pid int) (fields string, lines []string) {
	got, err := posture.Collect(pid)
	if err != nil {
		return "cannot be collected", []string{err.Error()}
	}
	got.Fds = counted(got.Fds)
	lines = posture.Diff(want, got)
	var names []string
	for _, line := range lines {
		name, _, _ := strings.Cut(line, ": got ")
		names = append(names, name)
	}
	return strings.Join(names, ", "), lines
}

const theSupervisor, theWorker = "botbox-supervisor\x00--resume", "serve\x00--control"

// shows waits for what the comparison of a process with its record shows, and
// stays: the worker opens and closes files while it starts.
func (s starter) shows(t *testing.T, who, text string, record posture.Posture, want string) {
	t.Helper()
	var fields string
	var lines []string
	same := 0
	for end := time.Now().Add(8 * time.Second); same < 5 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		fields, lines = "no such process", nil
		if pid := s.process(text); pid != 0 {
			fields, lines = differences(record, pid)
		}
		if same++; fields != want {
			same = 0
		}
	}
	if same == 0 {
		t.Errorf("%s differs in %q, want %q:\n%s\n%s", who, fields, want, strings.Join(lines, "\n"), s.stderr.String())
	}
}

// The whole record of both, as the kernel shows it, equals what is expected,
// with each setting that changes it.
func TestThePostureRecord(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		for _, vars := range [][]string{nil, {"OMB_BOT_USERS=1"}, {"OMB_CLOUD_HARDEN=0"}, {"ANTHROPIC_API_KEY=sk-canary", "NOTIFY_SOCKET=/nowhere"}} {
			s := watchedWorld(t, rig.Programs(t), child, vars...)
			s.await(t, "the worker", func() bool { _, err := os.Stat(s.out + "/run/api.sock"); return err == nil })
			s.shows(t, fmt.Sprintf("%q: the supervisor", vars), theSupervisor, s.record(t, false), "")
			s.shows(t, fmt.Sprintf("%q: the worker", vars), theWorker, s.record(t, true), "")
		}
	})
}

// mutant are programs with every row of postureMutations compiled in, each
// switched on by its name in a file beside them.
var mutant struct {
	sync.Once
	dir string
}

func mutants(t *testing.T) string {
	t.Helper()
	mutant.Do(func() {
		dir, err := os.MkdirTemp("", "mutant")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		var edits []rig.Edit
		for _, pkg := range []string{"supervisor main", "supervisor/internal/privdrop privdrop", "supervisor/internal/reap reap", "worker/cli cli"} {
			folder, name, _ := strings.Cut(pkg, " ")
			edits = append(edits, rig.Edit{folder + "/mutated.go", "", "package " + name + mutatedGo})
		}
		for _, m := range postureMutations {
			for _, e := range m.edits {
				edits = append(edits, rig.Edit{e.file, e.before, fmt.Sprintf("if mutated(%q) { %s }\n%s", m.name, e.do, e.before)})
			}
		}
		overlay := rig.Overlay(t, rig.Root(), edits)
		for name, pkg := range map[string]string{"botbox-supervisor": "./supervisor", "botbox": "./worker"} {
			if err := rig.Compile(filepath.Join(dir, name), pkg, rig.Build, "-overlay", overlay); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"boxentry", "boxprobe"} {
			if err := os.Link(filepath.Join(rig.Programs(t), name), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		mutant.dir = dir
	})
	if mutant.dir == "" {
		t.Fatal("the mutants could not be built")
	}
	return mutant.dir
}

const mutatedGo = `

import "os"

func mutated(name string) bool {
	self, _ := os.Readlink("/proc/self/exe")
	for i := len(self) - 1; i > 0; i-- {
		if self[i] == '/' {
			b, _ := os.ReadFile(self[:i] + "/mutation")
			return string(b) == name
		}
	}
	return false
}
`

// One thing more, or one thing less, and the comparison shows it: each mutation
// in the fields that it is about, in no other, and in the process that has it.
func TestEveryPostureMutationShows(t *testing.T) {
	bothAtOnce(t, func(t *testing.T, child bool) {
		for _, m := range slices.Concat([]postureMutation{{name: "none"}}, postureMutations) {
			t.Run(m.name, func(t *testing.T) {
				bin, err := os.MkdirTemp("", "mutation")
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(bin)
				os.Chmod(bin, 0o755)
				from := mutants(t)
				for _, name := range []string{"botbox-supervisor", "botbox", "boxentry", "boxprobe"} {
					if err := os.Link(filepath.Join(from, name), filepath.Join(bin, name)); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.WriteFile(filepath.Join(bin, "mutation"), []byte(m.name), 0o644); err != nil {
					t.Fatal(err)
				}
				s := watchedWorld(t, bin, child)
				s.await(t, "the worker", func() bool { _, err := os.Stat(s.out + "/run/api.sock"); return err == nil })
				s.shows(t, "the supervisor", theSupervisor, s.record(t, false), m.supervisor)
				s.shows(t, "the worker", theWorker, s.record(t, true), m.worker)
			})
		}
	})
}
