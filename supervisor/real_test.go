package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// The tests in this file run the four real programs: a supervisor that starts
// a worker that makes boxes.

// realWorld runs the supervisor in PID and mount namespaces of its own. No
// chroot: the kernel gives a process in one no user namespace.
func realWorld(t *testing.T, child bool, vars []string, args ...string) *running {
	t.Helper()
	return realWorldOf(t, rig.Programs(t), child, vars, args...)
}

// realWorldOf is that with the programs of another folder.
func realWorldOf(t testing.TB, bin string, child bool, vars []string, args ...string) *running {
	t.Helper()
	return realWorldIn(t, rootsDir(t), bin, child, vars, args...)
}

// rootsDir is a folder of root's, below which it makes its own.
func rootsDir(t testing.TB) string {
	t.Helper()
	top := rig.Dir(t)
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(top, 0, 0); err != nil {
		t.Fatal(err)
	}
	return top
}

// realWorldIn is that with the folders of a former one.
func realWorldIn(t testing.TB, top, bin string, child bool, vars []string, args ...string) *running {
	t.Helper()
	r := prepareWorld(t, top, bin, child, vars, args...)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Process.Kill(); r.Wait() })
	return r
}

// prepareWorld is that before it starts.
func prepareWorld(t testing.TB, top, bin string, child bool, vars []string, args ...string) *running {
	t.Helper()
	needRoot(t)
	script := `mount --make-rprivate / && cd "$TOP" && eval "$SETUP" || exit
		if [ "$WAIT" ]; then echo >waits; while [ ! -e go ]; do sleep 0.01; done; fi
		`
	if child {
		script += `trap : INT; "$BIN/botbox-supervisor" "$@"; status=$?; ps -e -o args= >"$TOP/left"; exit $status`
	} else {
		script += `exec "$BIN/botbox-supervisor" "$@"`
	}
	r := &running{out: top, bin: bin}
	r.Cmd = exec.Command("unshare", append([]string{"-pfm", "--mount-proc", "--kill-child", "sh", "-c", script, "sh"}, args...)...)
	r.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TOP=" + top, "BIN=" + bin,
		"OMB_RUN_DIR=" + top + "/run", "OMB_STATE_DIR=" + top + "/state", "OMB_BOT_BOX=1"}, vars...)
	r.Stdout, r.Stderr = &r.stdout, &r.stderr
	r.WaitDelay = 5 * time.Second
	return r
}

func bothWays(t *testing.T, do func(t *testing.T, child bool)) {
	t.Run("PID 1", func(t *testing.T) { do(t, false) })
	t.Run("child", func(t *testing.T) { do(t, true) })
}

// bothAtOnce is bothWays for what takes long: the two run beside each other,
// after the caller has returned.
func bothAtOnce(t *testing.T, do func(t *testing.T, child bool)) {
	bothWays(t, func(t *testing.T, child bool) {
		t.Parallel()
		do(t, child)
	})
}

func TestTheContainersCommandIsABox(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		r := realWorld(t, child, []string{"ANTHROPIC_API_KEY=sk-canary"}, "--", "sh", "-c",
			`id -un; tr '\0' '\n' </proc/1/cmdline | head -1; env | grep -c canary; printf '%.7s\n' "$ANTHROPIC_API_KEY"; exit 7`)
		if status := r.status(t); status != 7 {
			t.Errorf("status %d; stderr: %s", status, r.stderr.String())
		}
		lines := strings.Fields(r.stdout.String())
		if len(lines) != 4 || lines[0] != "maus" || filepath.Base(lines[1]) != "bwrap" || lines[2] != "0" || lines[3] != "omb_t0_" {
			t.Errorf("in the box: %q", lines)
		}
		if left := r.report("left"); child && strings.Contains(left, rig.Programs(t)) {
			t.Errorf("left behind: %s", left)
		}
	})
}

func TestAMissingCommandIs127(t *testing.T) {
	r := realWorld(t, true, nil, "--", "no-such-command")
	if status := r.status(t); status != 127 {
		t.Errorf("status %d; stderr: %s", status, r.stderr.String())
	}
}

// What the kernel shows of the two while a box runs.
func TestPostureOfSupervisorAndWorker(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		r := realWorld(t, child, nil, "--", "sh", "-c", "echo up; sleep 300")
		r.await(t, "the box", func() bool { return strings.Contains(r.stdout.String(), "up") })
		supervisor := statusOf(t, r, "botbox-supervisor\x00")
		wants(t, "supervisor", supervisor, "Uid:\t0\t0\t0\t0", "CapPrm:\t00000000000000e0", "CapEff:\t00000000000000e0",
			"CapInh:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1")
		worker := statusOf(t, r, "serve\x00--control")
		maus := rig.Account(t)
		wants(t, "worker", worker, fmt.Sprintf("Uid:\t%[1]s\t%[1]s\t%[1]s\t%[1]s", maus.Uid), fmt.Sprintf("Gid:\t%[1]s\t%[1]s\t%[1]s\t%[1]s", maus.Gid),
			"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapInh:\t0000000000000000", "CapBnd:\t0000000000000000",
			"CapAmb:\t0000000000000000", "NoNewPrivs:\t1")
		for _, line := range strings.Split(worker, "\n") {
			if groups, ok := strings.CutPrefix(line, "Groups:\t"); ok && strings.TrimSpace(groups) != "" && strings.TrimSpace(groups) != maus.Gid {
				t.Errorf("the worker has the groups %q", groups)
			}
		}
	})
}

// statusOf gives /proc/PID/status of the descendant whose command line has text.
func statusOf(t *testing.T, r *running, text string) string {
	t.Helper()
	for _, pid := range descendants(r.Process.Pid) {
		if strings.Contains(read(fmt.Sprintf("/proc/%d/cmdline", pid)), text) && !strings.HasPrefix(read(fmt.Sprintf("/proc/%d/cmdline", pid)), "sh\x00") {
			return read(fmt.Sprintf("/proc/%d/status", pid))
		}
	}
	t.Fatalf("no process with %q", text)
	return ""
}

func wants(t *testing.T, who, status string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(status, "\n"+line+"\n") {
			t.Errorf("%s: no %q in\n%s", who, line, status)
		}
	}
}

// The machine steps: done by default and read back, skipped when switched off,
// and the report says which.
func TestTheReportShowsTheBootSteps(t *testing.T) {
	for harden, want := range map[string]string{"1": "done", "0": "skipped"} {
		r := realWorld(t, false, []string{"OMB_CLOUD_HARDEN=" + harden})
		socket := r.out + "/run/api.sock"
		var out []byte
		var err error
		r.await(t, "the worker's report", func() bool {
			out, err = exec.Command("curl", "-sS", "--unix-socket", socket, "http://worker/api/cloud/box").Output()
			return err == nil && !strings.Contains(string(out), `"bwrap":""`) // it has looked at the machine
		})
		var report struct {
			Box   string
			Steps []struct{ Name, State, Evidence string }
		}
		if err != nil || json.Unmarshal(out, &report) != nil {
			t.Fatalf("%v: %s", err, out)
		}
		states := map[string]string{}
		for _, s := range report.Steps {
			states[s.Name] = s.State
		}
		if states["hidepid"] != want || states["drop"] != "done" || states["reexec"] != "done" || report.Box != "bwrap" {
			t.Errorf("OMB_CLOUD_HARDEN=%s: %s", harden, out)
		}
		if fly := states["fly"]; (harden == "0") != (fly == "skipped") {
			t.Errorf("OMB_CLOUD_HARDEN=%s: fly %s", harden, fly)
		}
		r.hidden(t, harden == "1")
		descend := descendants(r.Process.Pid)
		send(t, descend[0], syscall.SIGTERM)
		if status := r.status(t); status != 0 {
			t.Errorf("a worker that was asked to stop: %d; %s", status, r.stderr.String())
		}
	}
}

// hidden looks through the eyes of a maus process in the supervisor's
// namespaces whether the supervisor can be seen.
func (r *running) hidden(t *testing.T, want bool) {
	t.Helper()
	pid := fmt.Sprint(descendants(r.Process.Pid)[0])
	options, _ := exec.Command("nsenter", "-t", pid, "-m", "-p", "grep", " /proc proc", "/proc/mounts").Output()
	if strings.Contains(string(options), "hidepid=invisible") != want {
		t.Errorf("/proc is mounted with %s", options)
	}
	maus := rig.Account(t)
	err := exec.Command("nsenter", "-t", pid, "-m", "-p", "setpriv", "--reuid", maus.Uid, "--regid", maus.Gid, "--clear-groups", "test", "-d", "/proc/1").Run()
	if (err != nil) != want {
		t.Errorf("a maus process finds the supervisor in /proc: %v, want hidden: %v", err, want)
	}
}

// A stop reaches the engine, which may end as it likes inside the budget.
func TestStopIsTheEnginesToHandle(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		r := realWorld(t, child, nil, "--", "sh", "-c", "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.05; done")
		r.await(t, "the box", func() bool { return strings.Contains(r.stdout.String(), "up") })
		send(t, r.supervisor(t), syscall.SIGTERM)
		if status := r.status(t); status != 9 || !strings.Contains(r.stdout.String(), "bye") {
			t.Errorf("status %d, said %q; stderr: %s", status, r.stdout.String(), r.stderr.String())
		}
		r = realWorld(t, child, []string{"OMB_DRAIN_SECONDS=1"}, "--", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
		r.await(t, "the box", func() bool { return strings.Contains(r.stdout.String(), "up") })
		begin := time.Now()
		send(t, r.supervisor(t), syscall.SIGTERM)
		if status := r.status(t); status != 137 {
			t.Errorf("an engine that will not stop: %d; stderr: %s", status, r.stderr.String())
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("the stop took %v", took)
		}
	})
}

// Another process of the worker's own user can neither read nor open it.
func TestTheWorkerIsClosedToItsOwnUser(t *testing.T) {
	r := realWorld(t, false, []string{"OMB_CLOUD_HARDEN=0", "ANTHROPIC_API_KEY=sk-canary"})
	r.await(t, "the worker", func() bool { _, err := os.Stat(r.out + "/run/api.sock"); return err == nil })
	var worker string
	for _, pid := range descendants(r.Process.Pid) {
		// The first: a child of it that has not executed yet looks alike.
		if worker == "" && strings.Contains(read(fmt.Sprintf("/proc/%d/cmdline", pid)), "--control") {
			worker = fmt.Sprint(pid)
		}
	}
	if env := read("/proc/" + worker + "/environ"); strings.Contains(env, "canary") || env == "" {
		t.Errorf("the worker's own environment: %q", env)
	}
	maus := rig.Account(t)
	for _, name := range []string{"environ", "mem", "maps", "fd/0"} {
		cmd := exec.Command("setpriv", "--reuid", maus.Uid, "--regid", maus.Gid, "--clear-groups", "head", "-c1", "/proc/"+worker+"/"+name)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied") {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
	// Positive control: a plain process of the same user can be read.
	plain := rig.Command(t, "/tmp", rig.Env(t, "/tmp"), "sleep", "60")
	if err := plain.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { plain.Process.Kill(); plain.Wait() }()
	cmd := exec.Command("setpriv", "--reuid", maus.Uid, "--regid", maus.Gid, "--clear-groups", "head", "-c1", fmt.Sprintf("/proc/%d/environ", plain.Process.Pid))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("positive control: %v, %s", err, out)
	}
}
