package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// usersWorld is a supervisor that serves, with a Linux user per bot.
func usersWorld(t *testing.T, vars ...string) *running {
	t.Helper()
	r := realWorld(t, true, append([]string{"OMB_BOT_USERS=1"}, vars...))
	r.await(t, "the worker", func() bool { _, err := os.Stat(r.out + "/run/api.sock"); return err == nil })
	return r
}

// as is a command in the supervisor's namespaces, as the account with its
// group among the supplementary ones, as a login has it. It ends with the
// nsenter before it, which botbox alone would outlive as a docker exec's.
func (r *running) as(t testing.TB, id string, args ...string) *exec.Cmd {
	t.Helper()
	maus := rig.Account(t)
	who := []string{"--reuid", maus.Uid, "--regid", maus.Gid, "--groups", maus.Gid}
	if id != "" {
		who = []string{"--reuid", id, "--regid", id, "--clear-groups"}
	}
	pid := fmt.Sprint(descendants(r.Process.Pid)[0])
	cmd := exec.Command("nsenter", append(append([]string{"-t", pid, "-m", "-p", "setpriv", "--pdeathsig", "KILL"}, who...), args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + maus.HomeDir, "OMB_RUN_DIR=" + r.out + "/run", "OMB_STATE_DIR=" + r.out + "/state", "OMB_BOT_USERS=1"}
	cmd.Dir = "/"
	return cmd
}

func (r *running) box(t testing.TB, bot string, args ...string) *exec.Cmd {
	return r.as(t, "", append([]string{rig.Programs(t) + "/botbox", "run", "--bot", bot, "--cwd", "/tmp"}, args...)...)
}

const whoami = `id -u; id -un; awk '/^(Uid|Gid|Groups|CapBnd|CapEff|NoNewPrivs|Seccomp):/' /proc/self/status; cat /proc/self/uid_map; touch /tmp/x; stat -c %u /tmp/x; unshare -U true 2>/dev/null && echo nested; true`

// Each bot is one user of the machine, today and after a restart, and nobody
// else is; in the box it is what it was before.
func TestEachBotIsAUserOfItsOwn(t *testing.T) {
	r := usersWorld(t)
	maus := rig.Account(t)
	uids := map[string]string{}
	for _, bot := range []string{"alice", "bob", "alice"} {
		cmd := r.box(t, bot, "--", "sh", "-c", whoami+"; echo up; sleep 60")
		out := &output{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r.await(t, "the box", func() bool { return strings.Contains(out.String(), "up\n") })
		if !strings.Contains(out.String(), "\n"+maus.Uid+"\nmaus\n") || strings.Contains(out.String(), "nested") {
			t.Errorf("%s in the box: %s", bot, out)
		}
		status := r.inBox(t, cmd.Process.Pid)
		uid := strings.Fields(section(status, "Uid:"))[0]
		for _, name := range []string{"Uid:", "Gid:"} {
			if got := strings.Fields(section(status, name)); len(got) != 4 || got[0] != uid || got[1] != uid || got[2] != uid || got[3] != uid || len(uid) != 6 {
				t.Errorf("%s: %s %v", bot, name, got)
			}
		}
		if g := strings.TrimSpace(section(status, "Groups:")); g != "" {
			t.Errorf("%s keeps the groups %q", bot, g)
		}
		wants(t, bot, status, "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2")
		if was := uids[bot]; was != "" && was != uid {
			t.Errorf("%s was %s and is %s", bot, was, uid)
		}
		uids[bot] = uid
		// The asker and the worker rule over the box as before.
		cmd.Process.Kill()
		cmd.Wait()
		r.await(t, "the end of the box", func() bool {
			return !strings.Contains(string(mustOutput(t, r.as(t, "", rig.Programs(t)+"/botbox", "ps"))), bot)
		})
	}
	if uids["alice"] == uids["bob"] {
		t.Error("two bots are one user")
	}
	table := read(r.out + "/state.ctl/bot-users")
	if want := "bot-users 1 300000-365535\n300000 alice\n300001 bob\n"; table != want {
		t.Errorf("the table is %q", table)
	}
}

// inBox gives the status file of the sleep that is in a box.
func (r *running) inBox(t *testing.T, bwrap int) (status string) {
	t.Helper()
	r.await(t, "the sleep in the box", func() bool {
		for _, pid := range descendants(bwrap) {
			if text := read(fmt.Sprintf("/proc/%d/status", pid)); strings.HasPrefix(text, "Name:\tsleep\n") {
				status = text
			}
		}
		return status != ""
	})
	return status
}

func mustOutput(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v %s", cmd.Args, err, out)
	}
	return out
}

// section gives what stands behind a name in a status file.
func section(status, name string) string {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return rest
		}
	}
	return ""
}

// What a box of the account's has, a bot's own has: its status, its signals,
// its gates, its broker, its limits, a terminal, an end from outside.
func TestABotsBoxIsABoxAsEver(t *testing.T) {
	r := usersWorld(t)
	do := func(want int, says string, flags []string, script string, env ...string) {
		t.Helper()
		cmd := r.box(t, "alice", append(flags, "--", "sh", "-c", script)...)
		cmd.Env = append(cmd.Env, env...)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want || !strings.Contains(string(out), says) {
			t.Errorf("%s: %d %v %s", script, code, err, out)
		}
	}
	do(7, "", nil, "exit 7")
	do(0, `"user":"per-bot"`, []string{"--json"}, "true")
	do(143, "", nil, "kill -TERM $$")
	do(127, "", nil, "exec no-such-program")
	do(0, "omb_t0_", nil, `printf '%.7s\n' "$ANTHROPIC_API_KEY"`, "ANTHROPIC_API_KEY=sk-canary")
	do(0, "403", nil, "curl -s -o /dev/null -w '%{http_connect}' https://10.255.255.1:1/; true")
	do(0, "proxycommand /run/botbox/boxentry", nil, "ssh -G www.example.com")
	do(0, "404", nil, "curl -s -o /dev/null -w '%{http_code}' --noproxy '*' http://127.0.0.1:18080/x; true")
	do(0, "none", []string{"--net", "none"}, "curl -s --noproxy '*' http://127.0.0.1:18080/ || echo none")
	do(2, "annot fork", []string{"--pids", "8"}, "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 3 & done; exit 0")
	do(0, "locked", nil, "grep -q 'Seccomp:.2' /proc/self/status && mkdir /home/x 2>/dev/null || echo locked")
	do(0, "nothing", nil, "ls -l /proc/1/fd 2>/dev/null | grep -q user: || echo nothing")
	do(0, "a tty", []string{"--tty", "yes"}, "script -qec 'test -t 0 && echo a tty' /dev/null")

	// Pipes of its caller's are opened anew by name, as scripts do.
	run := r.box(t, "alice", "--", "sh", "-c", "cat /dev/stdin >/dev/stdout; echo anew >/dev/stderr")
	piped := r.as(t, "", append([]string{"sh", "-c", `echo in | "$@" 2>&1 | cat`, "caller"}, run.Args[len(run.Args)-10:]...)...)
	if out, err := piped.CombinedOutput(); err != nil || !strings.Contains(string(out), "in\nanew\n") {
		t.Errorf("pipes: %v %s", err, out)
	}

	// By the worker's word, and by a signal to the asker.
	for what, end := range map[string]func(pid int) error{
		"botbox kill": func(int) error {
			id := strings.Fields(strings.Split(string(mustOutput(t, r.as(t, "", rig.Programs(t)+"/botbox", "ps"))), "\n")[1])[0]
			return r.as(t, "", rig.Programs(t)+"/botbox", "kill", id).Run()
		},
		// As its caller's own user, who has no other right over it than to have made its namespace.
		"a kill of the asker": func(pid int) error { return r.as(t, "", "kill", "-9", innerPid(pid)).Run() },
		"the death of its caller": func(pid int) error {
			status := read(fmt.Sprintf("/proc/%d/status", pid))
			return exec.Command("kill", "-9", strings.TrimSpace(section(status, "PPid:"))).Run()
		},
	} {
		run := r.box(t, "bob", "--", "sh", "-c", "echo up; sleep 63 & sleep 63")
		cmd := r.as(t, "", append([]string{"sh", "-c", `"$@"; exit $?`, "caller"}, run.Args[len(run.Args)-10:]...)...)
		out := &output{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r.await(t, "the box", func() bool { return strings.Contains(out.String(), "up\n") })
		uid := strings.Fields(section(r.inBox(t, cmd.Process.Pid), "Uid:"))[0]
		if err := end(bwrapOf(t, cmd.Process.Pid)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		r.await(t, "the end by "+what, func() bool { return r.running(uid) == 0 })
		cmd.Wait()
	}
}

// bwrapOf is the process that the asker has become, below the nsenter of the
// test's own.
func bwrapOf(t *testing.T, pid int) int {
	t.Helper()
	for _, p := range append([]int{pid}, descendants(pid)...) {
		if strings.Contains(read(fmt.Sprintf("/proc/%d/cmdline", p)), "bwrap\x00--args") {
			return p
		}
	}
	t.Fatal("no bubblewrap")
	return 0
}

// running counts the processes of a user below the supervisor.
func (r *running) running(uid string) (n int) {
	procs, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, p := range procs {
		if ids := strings.Fields(section(read(p), "Uid:")); len(ids) == 4 && ids[0] == uid && !strings.Contains(read(p), "State:\tZ") {
			n++
		}
	}
	return n
}

func TestTheContainersCommandIsABotsBox(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		r := realWorld(t, child, []string{"OMB_BOT_USERS=1"}, "--", "sh", "-c", "id -un; echo up; sleep 64; exit 7")
		r.await(t, "the box", func() bool { return strings.Contains(r.stdout.String(), "maus\nup\n") })
		r.await(t, "its sleep", func() bool {
			for _, pid := range descendants(r.Process.Pid) {
				if read(fmt.Sprintf("/proc/%d/cmdline", pid)) == "sleep\x0064\x00" {
					wants(t, "the command", read(fmt.Sprintf("/proc/%d/status", pid)), "Uid:\t300000\t300000\t300000\t300000", "Groups:\t ")
					return send(t, pid, syscall.SIGKILL) == nil
				}
			}
			return false
		})
		if status := r.status(t); status != 7 {
			t.Errorf("status %d: %s", status, r.stderr.String())
		}
	})
}

// Where the map cannot be had there is no box, and never one of the account's.
func TestNoBoxWithoutAUserOfItsOwn(t *testing.T) {
	r := usersWorld(t)
	botbox := rig.Programs(t) + "/botbox"
	for what, c := range map[string]struct {
		args []string
		env  string
		code string
	}{
		"no bot":      {[]string{"run", "--cwd", "/tmp", "--", "id"}, "", "bot-users-refused"},
		"HOME":        {[]string{"run", "--bot", "a", "--home", "server", "--cwd", "/tmp", "--", "id"}, "", "bot-users-refused"},
		"standalone":  {[]string{"run", "--bot", "a", "--standalone", "--cwd", "/tmp", "--", "id"}, "", "bot-users-refused"},
		"no worker":   {[]string{"run", "--bot", "a", "--cwd", "/tmp", "--", "id"}, "OMB_RUN_DIR=/nonexistent", "bot-users-refused"},
		"no helper":   {[]string{"serve"}, "OMB_RUN_DIR=" + rig.Dir(t) + "/run", "bot-users-refused"},
		"a bad name":  {[]string{"run", "--bot", "a:b", "--cwd", "/tmp", "--", "id"}, "", "bot-users-refused"},
		"adopt: name": {[]string{"bot", "adopt", ".x"}, "", "usage"},
		"adopt: none": {[]string{"bot", "adopt"}, "", "usage"},
	} {
		cmd := r.as(t, "", append([]string{botbox}, c.args...)...)
		if c.env != "" {
			cmd.Env = append(cmd.Env, c.env, "OMB_STATE_DIR="+rig.Dir(t))
		}
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "reason: "+c.code) || strings.Contains(string(out), "uid=") {
			t.Errorf("%s: %v %s", what, err, out)
		}
	}
	off := realWorld(t, true, nil)
	off.await(t, "the worker", func() bool { _, err := os.Stat(off.out + "/run/api.sock"); return err == nil })
	if out, err := off.as(t, "", botbox, "bot", "adopt", "a").CombinedOutput(); err == nil || !strings.Contains(string(out), "reason: bot-users-off") {
		t.Errorf("switched off: %v %s", err, out)
	}
}

// Boxes that come and go, and such that are refused on the way, leave no file
// open in root's program or in the worker.
func TestBotsBoxesLeaveNoFileOpen(t *testing.T) {
	r := usersWorld(t)
	open := func() (all []int) {
		for _, text := range []string{"botbox-supervisor\x00--resume", "serve\x00--control"} {
			for _, pid := range descendants(r.Process.Pid) {
				if strings.Contains(read(fmt.Sprintf("/proc/%d/cmdline", pid)), text) {
					fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
					all = append(all, len(fds))
					break
				}
			}
		}
		return all
	}
	boxes := func(n int) {
		for range n {
			if out, err := r.box(t, "alice", "--", "true").CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
			if out, err := r.box(t, "alice", "--rw", "/var/lib/dpkg", "--", "true").CombinedOutput(); err == nil {
				t.Fatalf("a folder of root's was let in: %s", out)
			}
		}
	}
	boxes(3)
	before := open()
	boxes(10)
	r.await(t, fmt.Sprintf("the end of all files but %v", before), func() bool {
		after := open()
		return len(after) == 2 && after[0] <= before[0] && after[1] <= before[1]+2 // the poller's own come and go
	})
}
