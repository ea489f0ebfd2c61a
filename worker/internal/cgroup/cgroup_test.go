package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
)

// fake is a folder that looks like a delegated cgroup, and remembers in what
// order it was written. refuses makes one write fail.
type fake struct {
	mounted
	root    string
	log     []string
	refuses string
	lacks   string // a file that this kernel does not have
}

func (f *fake) rel(path string) string { return strings.TrimPrefix(path, f.root+"/") }

func (f *fake) write(path, value string) error {
	f.log = append(f.log, f.rel(path)+"="+value)
	if f.refuses != "" && strings.HasSuffix(path, f.refuses) {
		return os.ErrPermission
	}
	if filepath.Base(path) == "cgroup.procs" && !strings.Contains(filepath.Dir(path), prefix) {
		if err := os.WriteFile(f.root+"/cgroup.procs", nil, 0o600); err != nil { // moved out
			return err
		}
	}
	return f.mounted.write(path, value)
}

func (f *fake) mkdir(path string) error {
	f.log = append(f.log, "mkdir "+f.rel(path))
	if f.refuses == "mkdir" {
		return os.ErrPermission
	}
	if err := f.mounted.mkdir(path); err != nil {
		return err
	}
	return f.fill(path)
}

// fill makes the files that the kernel makes with a folder.
func (f *fake) fill(dir string) error {
	for _, name := range []string{"cgroup.procs", "cgroup.kill", "memory.max", "memory.swap.max", "memory.oom.group", "memory.events", "pids.max", "cpu.max"} {
		if name == f.lacks {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// rmdir removes the files with the folder, as the kernel does, unless a
// process is in it.
func (f *fake) rmdir(path string) error {
	f.log = append(f.log, "rmdir "+f.rel(path))
	if b, err := os.ReadFile(path + "/cgroup.procs"); err != nil || len(b) > 0 {
		return errors.Join(err, errors.New("busy"))
	}
	return os.RemoveAll(path)
}

// delegated is a tree with these controllers and these processes in it.
func delegated(t *testing.T, controllers, procs string) *fake {
	t.Helper()
	f := &fake{root: t.TempDir()}
	for name, text := range map[string]string{"cgroup.controllers": controllers, "cgroup.procs": procs, "cgroup.subtree_control": ""} {
		if err := os.WriteFile(filepath.Join(f.root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func TestTakeMovesOutBeforeItSharesOut(t *testing.T) {
	f := delegated(t, "cpuset cpu io memory hugetlb pids\n", "40\n41\n")
	tree, err := take(f, f.root, 41, 40)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"mkdir botbox-worker", "botbox-worker/cgroup.procs=40", "botbox-worker/cgroup.procs=41",
		"cgroup.subtree_control=+memory", "cgroup.subtree_control=+pids", "cgroup.subtree_control=+cpu"}
	if !slices.Equal(f.log, want) {
		t.Errorf("wrote\n%q, want\n%q", f.log, want)
	}
	if !tree.Has("memory") || !tree.Has("cpu") || !tree.Has("pids") || tree.Has("io") {
		t.Errorf("holds %v", tree.on)
	}
}

// A worker that a supervisor starts anew is born where the one before it was,
// and finds what that one left.
func TestTakeOnceMore(t *testing.T) {
	f := delegated(t, "memory pids cpu", "")
	for _, name := range []string{leaf, "box-dead", "box-alive"} {
		if err := f.mkdir(f.root + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(f.root+"/box-alive/cgroup.procs", []byte("77\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tree, err := take(f, f.root+"/"+leaf, 41)
	if err != nil || tree.dir != f.root {
		t.Fatalf("%+v, %v", tree, err)
	}
	for name, want := range map[string]bool{leaf: true, "box-dead": false, "box-alive": true} {
		if _, err := os.Stat(f.root + "/" + name); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
}

func TestTakeRefuses(t *testing.T) {
	for what, c := range map[string]struct {
		controllers, procs, refuses string
		touches                     bool
	}{
		"no controller of ours": {"hugetlb", "41", "", false},
		"a stranger in it":      {"memory", "41\n42", "", false},
		"a process elsewhere":   {"memory", "0\n41", "", false}, // of another pid namespace
		"no right to make":      {"memory", "41", "mkdir", true},
		"no right to move":      {"memory", "41", "botbox-worker/cgroup.procs", true},
		"no right to share out": {"memory", "41", "cgroup.subtree_control", true},
	} {
		f := delegated(t, c.controllers, c.procs)
		f.refuses = c.refuses
		if tree, err := take(f, f.root, 41); err == nil || tree.Has("memory") {
			t.Errorf("%s: taken", what)
		}
		if touched := len(f.log) > 0; touched != c.touches {
			t.Errorf("%s: wrote %q", what, f.log)
		}
	}
}

func taken(t *testing.T, controllers string) (*fake, *Tree) {
	t.Helper()
	f := delegated(t, controllers, "41")
	tree, err := take(f, f.root, 41)
	if err != nil {
		t.Fatal(err)
	}
	f.log = nil
	return f, tree
}

func TestGroupFromItsBirthToItsEnd(t *testing.T) {
	f, tree := taken(t, "memory pids cpu")
	g, err := tree.Make("box_1:a", Limits{Pids: 64, MemoryMB: 512, CPU: 1.5})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Add(100, 101); err != nil {
		t.Fatal(err)
	}
	want := []string{"mkdir box-box_1:a", "box-box_1:a/memory.max=536870912", "box-box_1:a/memory.swap.max=0",
		"box-box_1:a/memory.oom.group=1", "box-box_1:a/pids.max=65", "box-box_1:a/cpu.max=150000 100000",
		"box-box_1:a/cgroup.procs=100", "box-box_1:a/cgroup.procs=101"}
	if !slices.Equal(f.log, want) {
		t.Errorf("wrote\n%q, want\n%q", f.log, want)
	}
	for text, oom := range map[string]bool{"": false, "low 0\noom 1\noom_kill 0\n": false, "oom 1\noom_kill 3\noom_group_kill 1\n": true, "oom_kill 1": true} {
		if err := os.WriteFile(g.dir+"/memory.events", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if g.OOM() != oom {
			t.Errorf("%q: out of memory %v", text, !oom)
		}
	}
	g.Kill()
	if b, _ := os.ReadFile(g.dir + "/cgroup.kill"); string(b) != "1" {
		t.Errorf("cgroup.kill holds %q", b)
	}
	os.WriteFile(g.dir+"/cgroup.procs", nil, 0o600)
	g.Close()
	if _, err := os.Stat(g.dir); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

// A box of a worker that died may live on, and have the name of a new one.
func TestTwoBoxesAreNeverInOneGroup(t *testing.T) {
	f, tree := taken(t, "memory")
	if err := f.mkdir(f.root + "/box-a"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.root+"/box-a/cgroup.procs", []byte("77\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if g, err := tree.Make("a", Limits{MemoryMB: 1}); g != nil || reason.Of(err).Code != reason.LimitsUnavailable {
		t.Errorf("beside another box: %v, %v", g, err)
	}
	if err := os.WriteFile(f.root+"/box-a/cgroup.procs", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if g, err := tree.Make("a", Limits{MemoryMB: 1}); g == nil || err != nil {
		t.Errorf("where the other one has ended: %v", err)
	}
}

// What a worker leaves is removed when it ends, not only when there is a next;
// and one of that name that is ours by then is not.
func TestOutlive(t *testing.T) {
	f := delegated(t, "memory", "41")
	for _, name := range []string{"box-a", "box-b"} {
		if err := f.mkdir(f.root + "/" + name); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.root+"/"+name+"/cgroup.procs", []byte("77\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := take(f, f.root, 41)
	if err != nil || len(tree.left) != 2 {
		t.Fatalf("%v: %v", tree.left, err)
	}
	if tree.removed("box-a") {
		t.Error("removed with a process in it")
	}
	for _, name := range []string{"box-a", "box-b"} {
		os.WriteFile(f.root+"/"+name+"/cgroup.procs", nil, 0o600)
	}
	if g, err := tree.Make("b", Limits{MemoryMB: 1}); g == nil || err != nil {
		t.Fatal(err)
	}
	tree.outlive("box-a")
	tree.outlive("box-b")
	for name, want := range map[string]bool{"box-a": false, "box-b": true} {
		if _, err := os.Stat(f.root + "/" + name); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
}

func TestAGroupWithoutEveryLimitIsNone(t *testing.T) {
	f, tree := taken(t, "memory pids cpu")
	f.refuses = "cpu.max"
	if g, err := tree.Make("a", Limits{MemoryMB: 1, CPU: 1}); g != nil || reason.Of(err).Code != reason.LimitsUnavailable {
		t.Errorf("%v, %v", g, err)
	}
	if _, err := os.Stat(f.root + "/box-a"); !os.IsNotExist(err) {
		t.Errorf("a half-made group stays: %v", err)
	}
	f.refuses, f.lacks = "", "memory.swap.max" // a kernel without swap accounting has nothing to bound
	if g, err := tree.Make("b", Limits{MemoryMB: 1}); g == nil || err != nil {
		t.Errorf("without memory.swap.max: %v", err)
	}
	f.lacks = "memory.oom.group"
	if _, err := tree.Make("c", Limits{MemoryMB: 1}); err == nil {
		t.Error("without memory.oom.group: made")
	}
	f.lacks, f.refuses = "", "cgroup.procs"
	g, err := tree.Make("d", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Add(5); reason.Of(err).Code != reason.LimitsUnavailable || !strings.Contains(reason.FaultOf(err).Hint, "--standalone") {
		t.Errorf("a process that could not be moved: %v", err)
	}
}

func TestCheckNeverIgnoresALimit(t *testing.T) {
	_, full := taken(t, "memory pids cpu")
	_, memory := taken(t, "memory")
	for _, c := range []struct {
		tree *Tree
		l    Limits
		good bool
	}{
		{nil, Limits{Pids: 64}, true}, {nil, Limits{MemoryMB: 1}, false}, {nil, Limits{CPU: 1}, false},
		{memory, Limits{MemoryMB: 1}, true}, {memory, Limits{MemoryMB: 1, CPU: 1}, false},
		{full, Limits{Pids: 64, MemoryMB: 1, CPU: 1}, true},
	} {
		err := c.tree.Check(c.l, nil)
		if (err == nil) != c.good || (err != nil && reason.Of(err).Code != reason.LimitsUnavailable) {
			t.Errorf("%+v: %v", c.l, err)
		}
	}
	if err := (*Tree)(nil).Check(Limits{CPU: 1}, errors.New("the cause")); !strings.Contains(err.Error(), "the cause") {
		t.Errorf("it does not say why: %v", err)
	}
}

// Without a tree there are no groups, and nothing of them harms.
func TestNoTree(t *testing.T) {
	g, err := (*Tree)(nil).Make("a", Limits{Pids: 1})
	if g != nil || err != nil || g.Add(1) != nil || g.OOM() {
		t.Errorf("%v, %v", g, err)
	}
	g.Kill()
	g.Close()
}

func TestOwn(t *testing.T) {
	const unified = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	const inner = "30 24 0:26 /system.slice/a\\040b.service /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	for _, c := range []struct{ cgroups, mounts, want string }{
		{"0::/system.slice/x.service\n", unified, "/sys/fs/cgroup/system.slice/x.service"},
		{"0::/\n", unified, "/sys/fs/cgroup"},
		{"4:memory:/a\n0::/b\n", "1 2 0:1 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n", "/sys/fs/cgroup/unified/b"},
		{"0::/system.slice/a b.service/c\n", inner, "/sys/fs/cgroup/c"},
		{"0::/system.slice/other\n", inner, ""},
		{"0::/../x\n", unified, ""}, // outside this cgroup namespace
		{"4:memory:/a\n", unified, ""},
		{"0::/a\n", "1 2 0:1 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", ""},
		{"", "", ""},
	} {
		got, err := own(c.cgroups, c.mounts)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q in %q: %q, %v, want %q", c.cgroups, c.mounts, got, err, c.want)
		}
	}
}

func FuzzOwn(f *testing.F) {
	f.Add("0::/a\n", "30 24 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n")
	f.Fuzz(func(t *testing.T, cgroups, mounts string) {
		if dir, err := own(cgroups, mounts); err == nil && dir == "" {
			t.Errorf("%q, %q: no folder and no error", cgroups, mounts)
		}
	})
}

// A box that outlived a worker has its cgroup back, and nobody removes it
// under the box.
func TestACgroupIsTakenBack(t *testing.T) {
	f := delegated(t, "memory pids cpu", "7")
	dir := f.root + "/" + prefix + "old"
	if err := f.mkdir(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/cgroup.procs", []byte("99"), 0o600); err != nil {
		t.Fatal(err)
	}
	tree, err := take(f, f.root, 7)
	if err != nil {
		t.Fatal(err)
	}
	g := tree.Again("old")
	if g == nil || g.dir != dir || tree.Again("old") != nil || tree.Again("other") != nil || (*Tree)(nil).Again("old") != nil {
		t.Fatalf("%+v", g)
	}
	if !tree.removed(prefix + "old") { // what looks after left cgroups is through with it
		t.Error("it is still looked after as nobody's")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error("and was removed")
	}
	g.Kill()
	if b, _ := os.ReadFile(dir + "/cgroup.kill"); string(b) != "1" {
		t.Errorf("killed with %q", b)
	}
}
