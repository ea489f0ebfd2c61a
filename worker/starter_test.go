package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// docker exec and its like start a process from outside its PID namespace, and
// end a moment later. That is not the end of whoever wants the box.
func TestAStarterOutsideThatEnds(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "a PID namespace that another user's process is put into takes root")
	}
	p := newPlace(t)
	p.serve()
	said, user := filepath.Join(p.work, "said"), rig.Account(t)
	for _, c := range []struct {
		after time.Duration // of the first instruction of botbox
		lives bool
	}{{0, true}, {20 * time.Millisecond, true}, {80 * time.Millisecond, true}, {time.Second, false}} {
		os.Remove(said)
		box := p.botbox(nil, "run", "--", "sh", "-c", "sleep 1.5; echo lived >said")
		runtime := exec.Command("unshare", append([]string{"--pid", "--fork", "--mount-proc",
			"setpriv", "--reuid", user.Uid, "--regid", user.Gid, "--clear-groups"}, box.Args...)...)
		runtime.Env, runtime.Dir = box.Env, box.Dir
		if err := runtime.Start(); err != nil {
			t.Fatal(err)
		}
		rig.Eventually(t, 10*time.Second, "botbox runs", func() bool { return startedBotbox(runtime.Process.Pid) })
		time.Sleep(c.after)
		runtime.Process.Kill()
		runtime.Wait()
		lived := false
		for end := time.Now().Add(3 * time.Second); !lived && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			text, _ := os.ReadFile(said)
			lived = string(text) == "lived\n"
		}
		if lived != c.lives {
			t.Errorf("the starter ended %v after the start: the box lived on is %v, want %v", c.after, lived, c.lives)
		}
	}
}

// startedBotbox tells whether the child of a process has become botbox, or
// what botbox becomes.
func startedBotbox(pid int) bool {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, child := range bytes.Fields(children) {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%s/comm", child))
		if string(name) == "botbox\n" || string(name) == "bwrap\n" {
			return true
		}
	}
	return false
}
