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

	"github.com/openmausbot/botbox/shared/posture"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
)

// worker is the fake worker's report of itself.
type worker struct {
	Posture  posture.Posture
	Env      []string
	Args     []string
	Handover wire.Handover
	Hidden   bool // it could not see its parent in /proc
}

func (r *running) worker(t *testing.T) (w worker) {
	t.Helper()
	r.await(t, "the worker's report", func() bool { return r.report("worker") != "" })
	if err := json.Unmarshal([]byte(r.report("worker")), &w); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w worker) states() map[string]wire.StepState {
	m := map[string]wire.StepState{}
	for _, s := range w.Handover.Steps {
		m[s.Name] = s.State
	}
	return m
}

func account(t *testing.T) privdrop.Account {
	a, err := privdrop.FindAccount(read("/etc/passwd"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestWorkerPosture(t *testing.T) {
	for _, child := range []bool{false, true} {
		r := start(t, world{child: child, vars: "SECRET_KEY=canary NOTIFY_SOCKET=/nowhere LANG=C.UTF-8"})
		w := r.worker(t)
		id := account(t)
		u, g := int(id.UID), int(id.GID)
		want := posture.Posture{Status: posture.Status{UID: [4]int{u, u, u, u}, GID: [4]int{g, g, g, g}, NoNewPrivs: true, Umask: 0o077},
			// These are the real worker's, in TestThePostureRecord.
			Limits: w.Posture.Limits, Namespaces: w.Posture.Namespaces, Mounts: w.Posture.Mounts, Dumpable: w.Posture.Dumpable,
			Fds: map[string]string{"3": "/run/botbox.ctl/to-worker (deleted)", "4": "/run/botbox.ctl/from-worker (deleted)", "5": "socket", "6": "pipe"}}
		for fd, is := range w.Posture.Fds {
			if is == "anon_inode" || fd <= "2" && len(fd) == 1 { // the Go runtime's poller; stdio
				want.Fds[fd] = is
			}
		}
		if diff := posture.Diff(want, w.Posture); diff != nil {
			t.Errorf("child %t: %s", child, strings.Join(diff, "\n"))
		}
		env := strings.Join(w.Env, "\n")
		if strings.Contains(env, "canary") || strings.Contains(env, "NOTIFY") || !strings.Contains(env, "LANG=C.UTF-8") {
			t.Errorf("worker's environment:\n%s", env)
		}
		over := strings.Join(w.Handover.Env, "\n")
		if !strings.Contains(over, "SECRET_KEY=canary") || strings.Contains(over, "NOTIFY") {
			t.Errorf("handed over:\n%s", over)
		}
		if w.Handover.BootKey == [32]byte{} {
			t.Error("the boot key is none")
		}
	}
}

func TestSupervisorPosture(t *testing.T) {
	r := start(t, world{vars: "SECRET_KEY=canary"})
	r.worker(t)
	pid := r.supervisor(t)
	threads, err := posture.Threads(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range threads {
		want := posture.Status{Permitted: 0xe0, Effective: 0xe0, NoNewPrivs: true, Umask: 0o077, Groups: got.Groups, Seccomp: got.Seccomp}
		if diff := posture.DiffStatus(want, got); diff != nil {
			t.Error(diff)
		}
	}
	p, err := posture.Collect(pid)
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for fd, is := range p.Fds {
		if len(fd) > 1 || fd > "2" {
			open = append(open, is)
		}
	}
	slices.Sort(open)
	want := []string{"/run/botbox.ctl/from-worker (deleted)", "/run/botbox.ctl/to-worker (deleted)", "anon_inode", "anon_inode", "socket"}
	for i, is := range open {
		if strings.HasPrefix(is, "anon_inode") {
			open[i] = "anon_inode"
		}
		if _, name, ok := strings.Cut(is, "/r/run/"); ok { // the machine sees the private root from outside
			open[i] = "/run/" + name
		}
	}
	if !slices.Equal(open, want) {
		t.Errorf("open: %q, want %q", open, want)
	}
	if env := read(fmt.Sprintf("/proc/%d/environ", pid)); env != "" {
		t.Errorf("its environment shows %d bytes", len(env))
	}
	if comm := read(fmt.Sprintf("/proc/%d/comm", pid)); comm != "botbox-supervis\n" {
		t.Errorf("ps shows %q", comm)
	}
}

func TestHardeningStepsAndTheirSwitch(t *testing.T) {
	fly := `mkdir "$W/r/.fly" && touch "$W/r/.fly/api" && chmod 777 "$W/r/.fly" "$W/r/.fly/api"`
	all := map[string]wire.StepState{"account": "done", "folders": "done", "code-trust": "done", "hidepid": "done",
		"fly": "done", "cgroup": "absent", "bot-users": "skipped", "subreaper": "done", "drop": "done", "reexec": "done"}
	for _, c := range []struct {
		harden string
		state  wire.StepState
		hidden bool
		modes  string
	}{{"1", "done", true, "700 700 "}, {"0", "skipped", false, "777 777 "}, {"strict", "done", true, "700 700 "}} {
		r := start(t, world{setup: fly, vars: "OMB_CLOUD_HARDEN=" + c.harden})
		w := r.worker(t)
		want := map[string]wire.StepState{}
		for k, v := range all {
			want[k] = v
		}
		want["hidepid"], want["fly"] = c.state, c.state
		if got := w.states(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("harden %s: %v, want %v", c.harden, got, want)
		}
		pid := r.supervisor(t)
		mounts := read(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if w.Hidden != c.hidden || strings.Contains(mounts, "hidepid=invisible") != c.hidden {
			t.Errorf("harden %s: hidden %t, mountinfo\n%s", c.harden, w.Hidden, mounts)
		}
		modes := ""
		for _, name := range []string{"/.fly", "/.fly/api"} {
			var st unix.Stat_t
			if err := unix.Stat(fmt.Sprintf("/proc/%d/root%s", pid, name), &st); err != nil {
				t.Fatal(err)
			}
			modes += fmt.Sprintf("%o ", st.Mode&0o777)
		}
		if strings.ReplaceAll(modes, "600", "700") != c.modes && modes != c.modes {
			t.Errorf("harden %s: /.fly and its entry have %s", c.harden, modes)
		}
	}
	if strings.Contains(read("/proc/self/mountinfo"), "hidepid") {
		t.Error("the machine's own /proc was touched")
	}
}

func TestStrictEndsTheBoot(t *testing.T) {
	loose := t.TempDir()
	for _, name := range []string{"botbox-supervisor", "botbox"} {
		b, _ := os.ReadFile(filepath.Join(built, name))
		os.WriteFile(filepath.Join(loose, name), b, 0o755)
	}
	os.Chmod(loose, 0o777)
	r := start(t, world{bin: loose, vars: "OMB_CLOUD_HARDEN=strict", args: []string{"true"}})
	if got := r.status(t); got != 100 || !strings.Contains(r.stderr.String(), "reason: not-hardened") || r.starts() != 0 {
		t.Errorf("strict: exit %d after %d workers: %s", got, r.starts(), r.stderr.String())
	}
	r = start(t, world{bin: loose, vars: "OMB_CLOUD_HARDEN=1", args: []string{"true"}})
	if got := r.status(t); got != 0 || !strings.Contains(r.stderr.String(), "code-trust failed") {
		t.Errorf("not strict: exit %d: %s", got, r.stderr.String())
	}
}

func TestRefusedStarts(t *testing.T) {
	foreign := `mkdir -p "$W/r/run" && mkdir "$W/r/run/botbox" && chown 1234 "$W/r/run/botbox"`
	link := `mkdir -p "$W/r/run" && ln -s /etc "$W/r/run/botbox"`
	for name, c := range map[string]struct {
		world
		code string
	}{
		"missing account":  {world{setup: `grep -v ^maus: /etc/passwd > "$W/r/etc/passwd"`}, "no-user"},
		"account is root":  {world{setup: `sed s/^maus:x:[0-9]*/maus:x:0/ /etc/passwd > "$W/r/etc/passwd"`}, "no-user"},
		"foreign folder":   {world{setup: foreign}, "not-yours"},
		"linked folder":    {world{setup: link}, "not-yours"},
		"odd flag":         {world{args: []string{"--loud"}}, "usage"},
		"no command":       {world{args: []string{"--"}}, "usage"},
		"plain without --": {world{args: []string{"--plain", "true"}}, "usage"},
		"bad harden":       {world{vars: "OMB_CLOUD_HARDEN=canary"}, "bad-setting"},
		"bad run folder":   {world{vars: "OMB_RUN_DIR=canary"}, "bad-setting"},
		"bad drain":        {world{vars: "OMB_DRAIN_SECONDS=canary"}, "bad-setting"},
		"forged marker":    {world{args: []string{"--resume=0"}}, "not-dropped"},
	} {
		bothWays(t, func(t *testing.T, child bool) {
			c.world.child = child
			r := start(t, c.world)
			got := r.status(t)
			if text := r.stderr.String(); got != 100 || !strings.Contains(text, "reason: "+c.code+"\n") || strings.Contains(text, "canary") {
				t.Errorf("%s: exit %d, wanted %s:\n%s", name, got, c.code, text)
			}
			if r.starts() != 0 {
				t.Errorf("%s: a worker was started", name)
			}
		})
	}
}

// The caller has every capability and a well-formed state. It still gets
// nothing: the status of the threads is not what the drop leaves.
func TestForgedStateSkipsNothing(t *testing.T) {
	fd, err := unix.MemfdCreate("forged", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "forged")
	defer f.Close()
	f.Write(wire.EncodeRecords([]wire.Record{{Kind: wire.RecStep, Value: "hidepid\x00done\x00forged"}}))
	unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, 15)
	needRoot(t)
	cmd := exec.Command("unshare", "-pfm", "--mount-proc", "--kill-child", filepath.Join(built, "botbox-supervisor"), "--resume=3")
	cmd.ExtraFiles, cmd.Env = []*os.File{f}, []string{}
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 100 || !strings.Contains(string(out), "CapBnd: got ") || !strings.Contains(string(out), "not-dropped") {
		t.Errorf("exit %d: %s", cmd.ProcessState.ExitCode(), out)
	}
}

func TestCgoBuildIsRefused(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no C compiler, so there can be no such build")
	}
	bin := t.TempDir()
	cmd := exec.Command("go", "build", "-o", filepath.Join(bin, "botbox-supervisor"), ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	os.Symlink(filepath.Join(built, "botbox"), filepath.Join(bin, "botbox"))
	r := start(t, world{bin: bin, args: []string{"true"}})
	if got := r.status(t); got != 111 || !strings.Contains(r.stderr.String(), "cgo") {
		t.Errorf("exit %d: %s", got, r.stderr.String())
	}
}

func TestNotRoot(t *testing.T) {
	needRoot(t)
	cmd := exec.Command("setpriv", "--reuid", "maus", "--regid", "maus", "--clear-groups", filepath.Join(built, "botbox-supervisor"), "true")
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 100 || !strings.Contains(string(out), "reason: not-root") {
		t.Errorf("exit %d: %s", cmd.ProcessState.ExitCode(), out)
	}
}

func TestVersion(t *testing.T) {
	out, err := exec.Command(filepath.Join(built, "botbox-supervisor"), "--version").Output()
	if err != nil || string(out) != "botbox-supervisor "+wire.Build+"\n" {
		t.Errorf("%q %v", out, err)
	}
}

// Inheritable capabilities that a container runtime left (CVE-2022-24769) must
// not come back through root's exec.
func TestInheritedCapabilitiesAreCleared(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		r := start(t, world{child: child, under: "setpriv --inh-caps +sys_admin,+setpcap"})
		w := r.worker(t)
		if w.Posture.Bounding != 0 || w.Posture.Inheritable != 0 {
			t.Errorf("the worker has %x %x", w.Posture.Inheritable, w.Posture.Bounding)
		}
		threads, err := posture.Threads(r.supervisor(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range threads {
			want := posture.Status{Permitted: 0xe0, Effective: 0xe0, NoNewPrivs: true, Umask: 0o077, Groups: s.Groups, Seccomp: s.Seccomp}
			if diff := posture.DiffStatus(want, s); diff != nil {
				t.Error(diff)
			}
		}
	})
}
