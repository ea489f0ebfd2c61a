package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/boxprobe/internal/landlock"
	"github.com/openmausbot/botbox/shared/seccomp"

	"github.com/openmausbot/botbox/testbed/rig"
)

// These tests run the real probe in a real box over a real fixture, once with
// every protection and once without each. What must fail is compared exactly.

// seedIDs are the 29 checks of the seed's profile.
var seedIDs = strings.Fields("D1 D2 D3 D4 D5 D6 D7 P1 P2 P3 P4 N1 N2 N3 N4 N5 E1 E2 E3 T1 T2 W1 W2 B1 B2 B3 B4 B5 B6")

func TestEveryMutationFailsItsChecksAndNoOther(t *testing.T) {
	o := layOut(t)
	probe := build(t)
	n4 := "N4 "
	if o.NoRouteOutside {
		n4 = ""
	}
	s15, s16 := "S15 ", "S16"
	if o.Landlock < landlock.MinVersion {
		s15 = ""
	}
	if o.Landlock < landlock.WithScope {
		s16 = ""
	}
	p17 := "P17"
	if !rig.CoreFiles(t) {
		p17 = ""
	}
	mutations := []struct{ mutation, fails string }{
		{"", ""},
		{"bind-data", "D1 D2 D3 D4 D5 D6 D7"},
		{"share-pid", "P1 P2 P3 P4 P07"},
		{"share-net", "N1 N2 N3 " + n4 + "N5 P07"},
		{"share-ipc", "P07"},
		{"share-uts", "P07"},
		{"share-cgroup", "P07"},
		{"env-all", "E1 E2 E3"},
		{"tmp-shared", "T1 T2"},
		{"broker-off", "B1 B2 B3 B4 B5 B6"},
		{"writable-usr", "W1"},
		{"bind-home", "W1"},
		{"no-work", "W2"},
		{"egress-open", "W2"},
		{"harness-open", "N2"},
		{"bind-sys", "F11"},
		{"fd-leak", "P06"},
		{"keep-caps", "P14"},
		{"core-on", p17},
		{"no-limits", "L01 L02 L03"},
		{"no-landlock", strings.TrimSpace(s15 + s16)},
		{"seccomp-off", "S01 S02 S03 S04 S05 S07 S08 S09 S10 S11 S12 S13 S17 S18 N06 P10"},
	}
	// This box is as simple as it can be: what it has no part of, a repository,
	// a sign-in or the real gates, is looked at in the worker's own boxes
	// (selfcheck's tests), which break every row.
	tried := "F18 P15"
	for _, m := range mutations {
		tried += " " + m.fails
	}
	for _, m := range mutations {
		t.Run("mutation="+m.mutation, func(t *testing.T) {
			results := o.runBox(t, probe, m.mutation)
			var failed []string
			for id, r := range results {
				if r.Verdict != Pass && slices.Contains(strings.Fields(tried), id) {
					failed = append(failed, id)
				}
			}
			want := strings.Fields(m.fails)
			slices.Sort(want)
			slices.Sort(failed)
			if !slices.Equal(failed, want) {
				t.Errorf("failed %v, want %v", failed, want)
				for _, id := range failed {
					t.Logf("%s %s: %s", id, results[id].Verdict, results[id].Why)
				}
			}
			for _, id := range want {
				if !slices.Contains(brokenBy(id), m.mutation) {
					t.Errorf("the row of %s does not name %s", id, m.mutation)
				}
			}
		})
	}
	if err := unix.Kill(o.canary.Process.Pid, 0); err != nil {
		t.Errorf("the canary is gone: %v", err)
	}
	if w2, err := os.ReadFile(filepath.Join(o.WorkDir, "boxprobe.w2")); err != nil || string(w2) != o.Marker {
		t.Errorf("the write of W2 did not land: %v", err)
	}
}

// brokenBy gives the mutations of a row.
func brokenBy(id string) []string {
	for _, c := range table() {
		if c.ID == id {
			return c.BrokenBy
		}
	}
	return nil
}

func TestProbeByHand(t *testing.T) {
	probe := build(t)
	for _, c := range []struct {
		args   []string
		status int
	}{
		{[]string{"--list"}, 0},
		{nil, exitUsage},
		{[]string{"--nonsense"}, exitUsage},
		{[]string{"--profile", "half", "x"}, exitUsage},
		{[]string{"/nonexistent"}, exitSystem},
	} {
		cmd := exec.Command(probe, c.args...)
		out, _ := cmd.Output()
		if got := cmd.ProcessState.ExitCode(); got != c.status {
			t.Errorf("%v: status %d, want %d", c.args, got, c.status)
		}
		var rows []map[string]any
		if c.status == 0 && (json.Unmarshal(out, &rows) != nil || len(rows) != len(table()) || rows[0]["broken_by"] == nil) {
			t.Errorf("%v printed %s", c.args, out)
		}
	}
}

func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(openDir(t), "boxprobe")
	cmd := exec.Command("go", "build", "-o", bin, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

// runBox runs the probe in a box that lacks one protection.
func (o *outside) runBox(t *testing.T, probe, mutation string) map[string]line {
	t.Helper()
	fixture, err := json.Marshal(o.Fixture)
	if err != nil {
		t.Fatal(err)
	}
	dir := openDir(t)
	write(t, filepath.Join(dir, "fixture.json"), string(fixture))
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "entry"), string(self))
	os.Chmod(filepath.Join(dir, "entry"), 0o755)

	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		rig.Missing(t, "%v", err)
	}
	cmd := exec.Command(bwrap)
	cmd.Env = []string{"OMB_CLOUD_ROLE=home", "BOX_TOKEN=x", "CANARY_NAME=x"}
	argv, files := o.argv(t, mutation)
	argv = append(argv, "--ro-bind", dir, "/probe", "--ro-bind", filepath.Dir(probe), "/bin-probe", "--remount-ro", "/dev", "--remount-ro", "/",
		"--", "/probe/entry", mutation, "/bin-probe/boxprobe", "--profile", "full", "/probe/fixture.json")
	cmd.Args, cmd.ExtraFiles, cmd.SysProcAttr = append([]string{bwrap}, argv...), files, rig.Ordinary(t)
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "bwrap:") {
		rig.Missing(t, "no box here: %s", out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return readLines(t, string(out))
}

// readLines reads the output strictly: every line, and the last one.
func readLines(t *testing.T, out string) map[string]line {
	t.Helper()
	results, last := map[string]line{}, end{}
	for text := range strings.Lines(out) {
		var l struct {
			line
			end
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("line %q: %v", text, err)
		}
		if l.Done {
			last = l.end
		} else {
			results[l.ID] = l.line
		}
		if strings.Contains(text, testKey) {
			t.Errorf("the output holds the key: %s", text)
		}
	}
	inside := 0
	for _, c := range table() {
		if c.Do != nil {
			inside++
		}
	}
	if !last.Done || last.Count != len(results) || last.Count != inside {
		t.Errorf("last line %+v after %d results, table has %d\n%s", last, len(results), inside, out)
	}
	return results
}

// argv is a box as simple as it can be, less what the mutation takes.
func (o *outside) argv(t *testing.T, mutation string) ([]string, []*os.File) {
	t.Helper()
	var argv []string
	add := func(words ...string) { argv = append(argv, words...) }
	choose := func(name string, mutated, otherwise []string) {
		if mutation == name {
			add(mutated...)
		} else {
			add(otherwise...)
		}
	}
	size := []string{"--size", "16777216"}
	choose("no-limits", nil, size)
	add("--tmpfs", "/tmp", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--symlink", "usr/bin", "/bin",
		"--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
		"--size", "1048576", "--tmpfs", "/dev/shm", "--unshare-user", "--disable-userns", "--die-with-parent")
	for dest, name := range map[string]string{"/tmp": "tmp", "/var/tmp": "var", "/run": "run"} {
		if mutation == "tmp-shared" {
			add("--bind", filepath.Join(o.root, "shared", name), dest)
		} else if dest != "/tmp" {
			add(append(size, "--tmpfs", dest)...)
		}
	}
	for _, cpu := range []string{"possible", "online"} {
		add("--ro-bind", cpuDir+"/"+cpu, cpuDir+"/"+cpu)
	}
	choose("bind-sys", []string{"--ro-bind", "/sys/kernel", "/sys/kernel"}, nil)
	choose("bind-data", []string{"--bind", o.DataDir, o.DataDir},
		append(size, "--tmpfs", o.DataDir, "--bind", o.BotDir, o.BotDir))
	choose("no-work", []string{"--ro-bind", o.WorkDir, o.WorkDir}, []string{"--bind", o.WorkDir, o.WorkDir})
	code := filepath.Join(o.root, "code")
	choose("writable-usr", []string{"--bind", code, code}, []string{"--ro-bind", code, code})
	add("--bind", filepath.Join(o.root, "walled"), o.Walled)
	home := filepath.Join(o.root, "home")
	choose("bind-home", []string{"--bind", home, home}, nil)
	for _, namespace := range []string{"pid", "net", "ipc", "uts", "cgroup"} {
		choose("share-"+namespace, nil, []string{"--unshare-" + namespace})
	}
	choose("env-all", nil, []string{"--clearenv"})
	choose("keep-caps", []string{"--cap-add", "CAP_NET_BIND_SERVICE"}, nil)
	add("--setenv", "BOTBOX", "1", "--setenv", entryEnv, "1", "--setenv", o.KeyName)
	choose("broker-off", []string{testKey}, []string{testToken, "--setenv", o.BaseName,
		fmt.Sprintf("http://127.0.0.1:%d/b/%s/anthropic", o.BrokerPort, testToken)})
	return argv, o.files(t, mutation, &argv)
}

// files gives what the box inherits: the filter, and a leak.
func (o *outside) files(t *testing.T, mutation string, argv *[]string) []*os.File {
	t.Helper()
	arch, err := seccomp.Native()
	if err != nil {
		rig.Missing(t, "%v", err)
	}
	filter := filepath.Join(openDir(t), "filter")
	write(t, filter, string(seccomp.Assemble(seccomp.Engine, arch)))
	in, err := os.Open(filter)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	switch mutation {
	case "seccomp-off":
		return nil
	case "fd-leak":
		*argv = append(*argv, "--seccomp", "3")
		leak, err := os.Open(o.Database)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { leak.Close() })
		return []*os.File{in, leak}
	}
	*argv = append(*argv, "--seccomp", "3")
	return []*os.File{in}
}
