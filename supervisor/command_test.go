package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/openmausbot/botbox/testbed/rig"
)

// streaming is a command that has a stream through the broker open, takes it
// up again when it is cut, and ends when it is told to.
const streaming = `trap 'exit 42' USR1; trap 'echo hung up' HUP; tr -d '\0' </proc/1/environ | wc -c; env | grep -c canary
	while :; do curl -sN -H "x-api-key: $ANTHROPIC_API_KEY" "$ANTHROPIC_BASE_URL/v1/messages" & wait $!; sleep 0.05; done`

// The worker is killed twenty times under the container's command, whose stream
// through the broker goes on each time; signals still reach it through the last
// worker, and its status is the supervisor's.
func TestTheContainersBoxOutlivesItsWorkers(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		kills := 20
		if child {
			kills = 3
		}
		k := newTicker(t)
		f := &fleet{ticker: k, running: realWorld(t, child, []string{"ANTHROPIC_API_KEY=sk-canary", "ANTHROPIC_BASE_URL=" + k.URL}, "--", "sh", "-c", streaming)}
		ticks := func() int { return strings.Count(f.stdout.String(), "tick\n") }
		f.await(t, "the stream", func() bool { return ticks() > 0 })
		if said := f.stdout.String(); !strings.HasPrefix(said, "0\n0\n") {
			t.Errorf("bubblewrap's environment or the box's has the key, or something else: %q", said)
		}
		box, supervisor, held := childOf(t, f.running, "bwrap\x00--args"), f.supervisor(t), 0
		var took []time.Duration
		for i := range kills {
			worker := f.workerPid(t)
			f.awaitSettled(t, worker)
			send(t, worker, syscall.SIGKILL)
			began := time.Now()
			f.await(t, "the worker's end", func() bool { return read(fmt.Sprintf("/proc/%d/cmdline", worker)) == "" })
			had := ticks()
			f.await(t, fmt.Sprintf("the stream after kill %d", i), func() bool { return ticks() > had })
			took = append(took, time.Since(began))
			if i == 0 {
				held = files(supervisor)
			}
		}
		slices.Sort(took)
		t.Logf("the stream went on after %v at the median, %v at most", took[len(took)/2], took[len(took)-1])
		if now := childOf(t, f.running, "bwrap\x00--args"); now != box {
			t.Errorf("the box was process %d and is %d", box, now)
		}
		if n := files(supervisor); n > held {
			t.Errorf("the supervisor has %d files open, %d after the first kill", n, held)
		}
		f.awaitSettled(t, f.workerPid(t))
		send(t, supervisor, syscall.SIGHUP)
		f.await(t, "a signal in the box", func() bool { return strings.Contains(f.stdout.String(), "hung up\n") })
		send(t, supervisor, syscall.SIGUSR1)
		if status := f.status(t); status != 42 {
			t.Errorf("status %d: %s", status, f.stderr.String())
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.keys) != 1 || k.keys["sk-canary"] < kills+1 {
			t.Errorf("keys upstream: %v", k.keys)
		}
	})
}

// childOf gives the child of the supervisor's own that runs this.
func childOf(t *testing.T, r *running, text string) (pid int) {
	t.Helper()
	parent := fmt.Sprintf("\nPPid:\t%d\n", r.supervisor(t))
	r.await(t, "the child "+text, func() bool {
		for _, p := range descendants(r.Process.Pid) {
			if strings.Contains(read(fmt.Sprintf("/proc/%d/status", p)), parent) && strings.Contains(read(fmt.Sprintf("/proc/%d/cmdline", p)), text) {
				pid = p
				return true
			}
		}
		return false
	})
	return pid
}

// A stop is the engine's to handle under a second worker as under the first;
// between two workers it ends the box.
func TestAStopAfterAWorkersDeath(t *testing.T) {
	for _, c := range []struct {
		settle bool
		want   []int
	}{{true, []int{9}}, {false, []int{9, 143}}} {
		f := &fleet{running: realWorld(t, true, nil, "--", "sh", "-c", "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.05; done")}
		f.await(t, "the box", func() bool { return strings.Contains(f.stdout.String(), "up") })
		worker := f.workerPid(t)
		f.awaitSettled(t, worker)
		send(t, worker, syscall.SIGKILL)
		if c.settle {
			f.await(t, "its end", func() bool { return read(fmt.Sprintf("/proc/%d/cmdline", worker)) == "" })
			f.awaitSettled(t, f.workerPid(t))
		}
		began := time.Now()
		send(t, f.supervisor(t), syscall.SIGTERM)
		if status := f.status(t); !slices.Contains(c.want, status) || time.Since(began) > 8*time.Second {
			t.Errorf("settled %t: status %d after %v; %s", c.settle, status, time.Since(began), f.stderr.String())
		}
		if left := f.report("left"); strings.Contains(left, rig.Programs(t)) || strings.Contains(left, "bwrap") {
			t.Errorf("left behind: %s", left)
		}
	}
}

// A stop at any moment between the boot and a command at work ends it, in time
// and with the status of a command that was asked to end.
func TestAStopAtAnyMomentOfTheCommand(t *testing.T) {
	codes := map[int]int{}
	for i := range 30 {
		r := realWorld(t, true, nil, "--", "sleep", "60")
		pid := 0
		r.await(t, "the second image", func() bool {
			pid = r.supervisor(t)
			return strings.Contains(read(fmt.Sprintf("/proc/%d/cmdline", pid)), "--resume=") && read(fmt.Sprintf("/proc/%d/comm", pid)) == "botbox-supervis\n"
		})
		time.Sleep(time.Duration(rand.IntN(10*(i+1))) * time.Millisecond) // up to 0.3 s, and often early
		began := time.Now()
		send(t, pid, syscall.SIGTERM)
		got := r.status(t)
		codes[got]++
		if got != 143 && got != 137 || time.Since(began) > 8*time.Second {
			t.Errorf("run %d: exit %d after %v: %s", i, got, time.Since(began), r.stderr.String())
		}
		if left := r.report("left"); strings.Contains(left, rig.Programs(t)) || strings.Contains(left, "bwrap") || strings.Contains("\n"+left, "\nsleep") {
			t.Errorf("run %d: left behind: %s", i, left)
		}
	}
	t.Logf("exit statuses: %v", codes)
	if codes[143] < 25 { // 137: killed, for it was between two programs
		t.Errorf("too many that were not asked: %v", codes)
	}
}

func TestExitStatusOfTheContainersBox(t *testing.T) {
	setuid := rootsDir(t)
	rig.Write(t, setuid+"/bwrap", "#!/bin/sh\n")
	if err := os.Chmod(setuid+"/bwrap", 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want int
		says string
		vars []string
		args []string
	}{
		{160, "", nil, []string{"sh", "-c", "exit 160"}},
		{139, "", nil, []string{"sh", "-c", "kill -SEGV $$"}},
		{137, "", nil, []string{"sh", "-c", "kill -KILL $$"}},
		{75, "", nil, []string{"sh", "-c", "exit 75"}},
		{126, "", nil, []string{"/etc/passwd"}},
		{127, "", nil, []string{"no-such-command"}},
		{125, "reason: switched-off", []string{"OMB_BOT_BOX=0"}, []string{"true"}},
		{125, "reason: bwrap-setuid", []string{"PATH=" + setuid + ":/usr/sbin:/usr/bin:/sbin:/bin"}, []string{"true"}},
	} {
		for _, child := range []bool{false, true} {
			r := realWorld(t, child, c.vars, append([]string{"--"}, c.args...)...)
			if got := r.status(t); got != c.want || !strings.Contains(r.stderr.String(), c.says) {
				t.Errorf("%q (child %t): exit %d, want %d: %s", c.args, child, got, c.want, r.stderr.String())
			}
		}
	}
}

// The container's terminal is the command's: it is one, what is typed arrives,
// and Control-C is the engine's to handle.
func TestTheContainersTerminalIsTheCommands(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		r := prepareWorld(t, rootsDir(t), rig.Programs(t), child, nil, "--", "sh", "-c",
			`trap 'exit 42' INT; test -t 0 && test -t 1 && test -t 2 && stty size; read line; echo "got $line"; while :; do sleep 0.05; done`)
		r.Stdout, r.Stderr, r.Stdin = nil, nil, nil
		tty, err := pty.StartWithSize(r.Cmd, &pty.Winsize{Rows: 33, Cols: 77})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Process.Kill(); tty.Close() })
		go func() {
			b := make([]byte, 4096)
			for {
				n, err := tty.Read(b)
				r.stdout.Write(b[:n])
				if err != nil {
					return
				}
			}
		}()
		r.await(t, "a terminal", func() bool { return strings.Contains(r.stdout.String(), "33 77") })
		tty.WriteString("a line\n")
		r.await(t, "what was typed", func() bool { return strings.Contains(r.stdout.String(), "got a line") })
		tty.Write([]byte{3})
		if status := r.status(t); status != 42 {
			t.Errorf("status %d: %s", status, r.stdout.String())
		}
	})
}

// What asks for the command's box holds the container's keys for a moment, and
// is closed to other processes of its own user.
func TestTheAskerIsClosedToItsOwnUser(t *testing.T) {
	needRoot(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	run := rig.Dir(t)
	if err := os.Chmod(run, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := rig.Command(t, "/", rig.Env(t, "/tmp", "OMB_RUN_DIR="+run+"/none"), rig.Programs(t)+"/botbox", "run", "--control")
	cmd.ExtraFiles = []*os.File{read}
	said := &output{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	read.Close()
	write.WriteString("bbx-start/1\x00/\x001\x00true\x00KEY=sk-canary\x00")
	write.Close()
	rig.Eventually(t, 15*time.Second, "the pipe is read", func() bool {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/3", cmd.Process.Pid))
		return !strings.HasPrefix(to, "pipe:")
	})
	if strings.Contains(said.String(), "reason: ") {
		t.Fatal(said.String()) // it does not wait for a worker
	}
	maus := rig.Account(t)
	look := func(pid int, name string) (string, error) {
		out, err := exec.Command("setpriv", "--reuid", maus.Uid, "--regid", maus.Gid, "--clear-groups", "head", "-c1", fmt.Sprintf("/proc/%d/%s", pid, name)).CombinedOutput()
		return string(out), err
	}
	for _, name := range []string{"environ", "mem", "maps", "fd/0"} {
		if out, err := look(cmd.Process.Pid, name); err == nil || !strings.Contains(out, "Permission denied") {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
	plain := rig.Command(t, "/tmp", rig.Env(t, "/tmp"), "sleep", "60") // positive control
	if err := plain.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { plain.Process.Kill(); plain.Wait() }()
	if out, err := look(plain.Process.Pid, "environ"); err != nil {
		t.Errorf("positive control: %v, %s", err, out)
	}
}

// By hand there is no such pipe.
func TestTheAskerIsStartedByTheSupervisorAlone(t *testing.T) {
	needRoot(t)
	for _, args := range [][]string{{"run", "--control"}, {"run", "--control", "--", "true"}, {"run", "--control", "--net", "none"}} {
		out := rig.Run(t, rig.Command(t, "/", rig.Env(t, "/tmp"), append([]string{rig.Programs(t) + "/botbox"}, args...)...))
		if out.Code != 100 || !strings.Contains(out.Stderr, "reason: usage") {
			t.Errorf("%q: %d %s", args, out.Code, out.Stderr)
		}
	}
}
