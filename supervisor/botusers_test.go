package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
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
// group among the supplementary ones, as a login has it.
func (r *running) as(t *testing.T, id string, args ...string) *exec.Cmd {
	t.Helper()
	maus := rig.Account(t)
	who := []string{"--reuid", maus.Uid, "--regid", maus.Gid, "--groups", maus.Gid}
	if id != "" {
		who = []string{"--reuid", id, "--regid", id, "--clear-groups"}
	}
	pid := fmt.Sprint(descendants(r.Process.Pid)[0])
	cmd := exec.Command("nsenter", append(append([]string{"-t", pid, "-m", "-p", "setpriv"}, who...), args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + maus.HomeDir, "OMB_RUN_DIR=" + r.out + "/run", "OMB_STATE_DIR=" + r.out + "/state", "OMB_BOT_USERS=1"}
	cmd.Dir = "/"
	return cmd
}

func (r *running) box(t *testing.T, bot string, args ...string) *exec.Cmd {
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
