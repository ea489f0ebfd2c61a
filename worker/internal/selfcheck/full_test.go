package selfcheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/report"
)

// mutatedFull is what each mutation must break of the full profile, beside
// what mutated names, written down a second time.
var mutatedFull = map[string]string{
	"bind-data":  "F15 F19",
	"share-pid":  "P02 P04 P05 P07 P13",
	shareNet:     "P07",
	"env-all":    "E02 E05 E06",
	"tmp-shared": "F10",

	"token-rw":        "F05",
	"writable-root":   "F08",
	"writable-dev":    "F28 L02",
	"no-cpu-files":    "F12",
	"shm-shared":      "F29",
	"argv-rw":         "F31",
	"entry-rw":        "F32",
	"bind-sys":        "F11",
	"bind-fly":        "F13",
	"bind-home":       "F14 F19 F30",
	"bind-run":        "F15 F16",
	"dev-host":        "F17",
	"no-pins":         "F20",
	"git-open":        "F20 F27",
	"bind-by-path":    "F23",
	"no-dest-check":   "F22",
	"no-safe-open":    "F24",
	"worker-runs-git": "F25",
	"litter":          "F26",
	"setuid-bwrap":    "M03",

	"share-ipc":      "P07 P08",
	"share-uts":      "P07 P09",
	"share-cgroup":   "P07 P19",
	"fd-leak":        "P06",
	"outer-env":      "P05",
	"no-new-session": "P11",
	"root-inside":    "P16",
	"keep-caps":      "P14 P18",
	"core-on":        "P17",
	"no-die":         "P12",
	"worker-open":    "M05",

	"env-none":     "E03",
	"argv-secrets": "E04",

	"no-landlock": "S15 S16",
	"no-limits":   "L01 L02 L03",
}

// Every row can be broken here, or boxprobe says by what else; and every
// mutation breaks a row.
func TestEveryRowHasAMutation(t *testing.T) {
	probe, err := os.Open(filepath.Join(built(t), "boxprobe"))
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	rows, err := readTable(box.NewSpawner(), box.Program{File: probe}, full)
	if err != nil {
		t.Fatal(err)
	}
	known, breaks := mutationNames(), map[string]bool{}
	for _, r := range rows {
		for _, name := range r.BrokenBy {
			breaks[name] = true
			if !slices.Contains(known, name) {
				t.Errorf("%s is broken by %s, which is no mutation of ours", r.ID, name)
			}
		}
		if _, ok := judges[r.ID]; r.Outside && !ok {
			t.Errorf("nobody looks at %s", r.ID)
		}
	}
	for _, name := range known {
		if !breaks[name] {
			t.Errorf("%s breaks nothing", name)
		}
	}
	for id := range judges {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.ID == id }) {
			t.Errorf("%s is looked at and is no row", id)
		}
	}
}

// No program of ours but the self-check takes a protection away: nobody else
// names what a plan may lack.
func TestNobodyElseTakesProtectionsAway(t *testing.T) {
	allowed := []string{"worker/internal/box", "worker/internal/selfcheck", "shared/seccomp"}
	found := 0
	err := filepath.WalkDir(rig.Root(), func(path string, entry fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(rig.Root(), path)
		if err != nil || relErr != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return nil // testdata holds files that are no Go
		}
		ast.Inspect(file, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok || !slices.Contains([]string{"Lacks", "Careless", "ByPath", "Unchecked", "CapDrop", "OwnID", "CoreLimit", "Memfd", "Weakened", "KeepScore", "AssembleOf", "StartBehind"}, id.Name) {
				return true
			}
			found++
			if !slices.Contains(allowed, filepath.Dir(rel)) {
				t.Errorf("%s names %s", rel, id.Name)
			}
			return true
		})
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("control: %d names, %v", found, err)
	}
}

// What a box reports of a row that only this side can see is not believed.
func TestAProbeReportsNoRowOfOurs(t *testing.T) {
	rows := append(slices.Clone(twoRows), row{ID: "O1", Layer: "o", Outside: true})
	line := strings.Replace(lineA, "A1", "O1", 1)
	if _, err := readOutput(strings.NewReader(line+lineB+last), rows); err == nil {
		t.Error("it is")
	}
	if _, err := readOutput(strings.NewReader(lineA+lineB+last), rows); err != nil {
		t.Errorf("control: %v", err)
	}
}

// A judge is asked where the probe could say nothing or passed, and not where
// the probe has failed already.
func TestJudgesAreAsked(t *testing.T) {
	judges["O1"] = func(*evidence) report.Result { return failed("seen") }
	judges["O2"] = judges["O1"]
	t.Cleanup(func() { delete(judges, "O1"); delete(judges, "O2") })
	rows := []row{{ID: "O1", Outside: true}, {ID: "O2"}}
	for said, want := range map[string]string{pass: "seen", fail: "its own", inconclusive: "its own"} {
		e := &evidence{results: map[string]report.Result{"O2": {Verdict: said, Why: "its own"}}}
		e.judged(rows)
		if e.results["O1"].Why != "seen" || e.results["O2"].Why != want {
			t.Errorf("%s: %+v", said, e.results)
		}
	}
	e := &evidence{results: map[string]report.Result{}}
	if e.judged(rows); e.results["O2"].Verdict != "" {
		t.Errorf("a row that the probe did not report: %+v", e.results["O2"])
	}
	e = &evidence{} // as after a probe that had no time to begin
	if e.judged(rows); e.results["O1"].Why != "seen" {
		t.Errorf("after a probe that said nothing: %+v", e.results)
	}
}

func TestSourceOf(t *testing.T) {
	const info = "1 0 8:1 / / rw - ext4 a rw\n2 1 0:5 / /tmp rw - tmpfs t rw\n3 1 8:2 /sub/tmp /tmp rw - ext4 b rw\n4 3 8:3 /x /tmp/deep rw - ext4 c rw\n"
	for path, want := range map[string]string{
		"/etc/x": "8:1 /etc/x", "/tmp/a/b": "8:2 /sub/tmp/a/b", "/tmp/deep": "8:3 /x", "/tmp/deeper": "8:2 /sub/tmp/deeper", "/": "8:1 /",
	} {
		if got := sourceOf(info, path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := sourceOf("", "/x"); got != "" {
		t.Errorf("no mounts: %q", got)
	}
}

// The segment of a run that was killed is removed, one of a living run is not,
// and a stranger's neither.
func TestSweepTakesNobodysSharedMemory(t *testing.T) {
	o := &outside{}
	defer o.remove()
	if err := o.shareMemory(); err != nil || o.SharedKey == 0 {
		t.Fatalf("%v, key %x", err, o.SharedKey)
	}
	other, err := unix.SysvShmGet(0x0c0c_1234, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.SysvShmCtl(other, unix.IPC_RMID, nil)
	const nobodys = keyPrefix | 0xfffe
	maker := exec.Command("perl", "-e", "defined shmget("+strconv.Itoa(nobodys)+", 4096, 01600) or exit 1")
	if out := rig.Run(t, maker); out.Code != 0 {
		rig.Missing(t, "%+v", out)
	}
	sweepShared()
	if _, err := unix.SysvShmGet(nobodys, 0, 0); err != unix.ENOENT {
		t.Errorf("a dead process's segment: %v", err)
	}
	if err := (&evidence{outside: o}).sharedMemory(); err != nil {
		t.Errorf("a living one's: %v", err)
	}
	if _, err := unix.SysvShmGet(0x0c0c_1234, 0, 0); err != nil {
		t.Errorf("a stranger's: %v", err)
	}
	if err := o.remove(); err != nil {
		t.Error(err)
	}
	if _, err := unix.SysvShmGet(o.SharedKey, 0, 0); err != unix.ENOENT {
		t.Errorf("after its own run: %v", err)
	}
}

func TestWorkerItself(t *testing.T) {
	const good = "Uid:\t7\t7\t7\t7\nCapInh:\t0000\nCapPrm:\t0000\nCapEff:\t0000\nCapBnd:\t01ff\nCapAmb:\t0000\nNoNewPrivs:\t1\n"
	closed := func() (int, error) { return 0, nil }
	for name, c := range map[string]struct {
		old, new string
		dump     int
		want     string
	}{
		"as it must be":        {"", "", 0, pass},
		"an effective one":     {"CapEff:\t0000", "CapEff:\t0080", 0, fail},
		"a permitted one":      {"CapPrm:\t0000", "CapPrm:\t0080", 0, fail},
		"an ambient one":       {"CapAmb:\t0000", "CapAmb:\t0080", 0, fail},
		"a set not told":       {"CapInh:\t0000\n", "", 0, inconclusive},
		"root saved":           {"Uid:\t7\t7\t7\t7", "Uid:\t7\t7\t0\t7", 0, fail},
		"privileges by exec":   {"NoNewPrivs:\t1", "NoNewPrivs:\t0", 0, fail},
		"open to its own user": {"", "", 1, fail},
	} {
		file := filepath.Join(t.TempDir(), "status")
		if err := os.WriteFile(file, []byte(strings.Replace(good, c.old, c.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		dump := closed
		if c.dump != 0 {
			dump = func() (int, error) { return c.dump, nil }
		}
		if r := workerItself(file, dump); r.Verdict != c.want {
			t.Errorf("%s: %s (%s), want %s", name, r.Verdict, r.Why, c.want)
		}
	}
	if r := workerItself("/nonexistent", closed); r.Verdict != inconclusive {
		t.Errorf("no status: %+v", r)
	}
}

func TestQuietOutside(t *testing.T) {
	good := func() sighting {
		return sighting{environ: map[string]string{"bubblewrap": "", "PID 1": "", "the engine": "A=b\x00BOTBOX=1\x00"},
			files: []string{"0 /dev/pts/1", "1 pipe:[1]", "2 /dev/null", "4 anon_inode:[eventfd]"}}
	}
	for name, c := range map[string]struct {
		change func(*sighting)
		want   string
	}{
		"as it must be":      {func(*sighting) {}, pass},
		"a secret of PID 1":  {func(s *sighting) { s.environ["PID 1"] = "A=b" }, fail},
		"one of bubblewrap":  {func(s *sighting) { s.environ["bubblewrap"] = "A=b" }, fail},
		"a file of PID 1":    {func(s *sighting) { s.files = append(s.files, "5 /etc/passwd") }, fail},
		"no environment":     {func(s *sighting) { s.environ["the engine"] = "" }, inconclusive},
		"nothing to be seen": {func(s *sighting) { s.err = unix.ENOENT }, inconclusive},
	} {
		s := good()
		c.change(&s)
		if r := (&evidence{seen: s}).quietOutside(); r.Verdict != c.want {
			t.Errorf("%s: %s (%s), want %s", name, r.Verdict, r.Why, c.want)
		}
	}
}
