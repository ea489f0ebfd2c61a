package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// start runs a command line in the background and gives what it prints.
func start(t *testing.T, cmd *exec.Cmd) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, bufio.NewReader(out)
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	s, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("the box said %q, then %v", s, err)
	}
	return strings.TrimSpace(s)
}

// marked lists the processes whose command line holds a mark that no other
// process has. It reads only /proc, and signals nothing.
func marked(t *testing.T, mark string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if b, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); strings.Contains(string(b), mark) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func mark(t *testing.T) string { return fmt.Sprintf("mark-%d-%d", os.Getpid(), time.Now().UnixNano()) }

// Whoever kills whatever of a box, nothing of it lives a second later: not the
// engine, not what it daemonised.
func TestADeadBoxLeavesNothing(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		m := mark(t)
		script := "setsid sh -c 'sleep 300; : " + m + "' & echo up; sleep 300; : " + m
		for _, victim := range []string{"caller", "engine", "pid 1"} {
			cmd, out := start(t, p.botbox(nil, with(run, "--", "sh", "-c", script)...))
			line(t, out)
			if n := len(marked(t, m)); n < 3 {
				t.Fatalf("positive control: only %d processes of the box are seen", n)
			}
			kill(t, cmd, m, victim)
			rig.Eventually(t, time.Second, victim+" killed: the box is gone", func() bool { return len(marked(t, m)) == 0 })
			cmd.Wait()
		}
	})
}

// kill sends SIGKILL to one process of the box that cmd is.
func kill(t *testing.T, cmd *exec.Cmd, mark, victim string) {
	t.Helper()
	pid := cmd.Process.Pid
	switch victim {
	case "pid 1":
		pid = inBox(t, mark, 1)
	case "engine":
		pid = inBox(t, mark, 2)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// inBox gives the process that has a number in the box with the mark.
func inBox(t *testing.T, mark string, number int) (pid int) {
	t.Helper()
	rig.Eventually(t, 5*time.Second, fmt.Sprintf("process %d of the box is there", number), func() bool {
		for _, pid = range marked(t, mark) {
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if strings.HasSuffix(field(string(status), "NSpid:"), fmt.Sprintf("\t%d", number)) {
				return true
			}
		}
		return false
	})
	return pid
}

func field(status, name string) string {
	for _, l := range strings.Split(status, "\n") {
		if strings.HasPrefix(l, name) {
			return l
		}
	}
	return ""
}

// What an engine daemonised ends with it, and the caller's pipe closes.
func TestTheBoxEndsWithItsEngine(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		m := mark(t)
		begin := time.Now()
		out := rig.Run(t, p.botbox(nil, with(run, "--", "sh", "-c", "setsid sh -c 'sleep 300; : "+m+"' & exit 3")...))
		if out.Code != 3 || time.Since(begin) > 30*time.Second {
			t.Errorf("%+v after %v", out, time.Since(begin))
		}
		rig.Eventually(t, time.Second, "the daemonised child is gone", func() bool { return len(marked(t, m)) == 0 })
	})
}

// Standing alone, this process hands signals to the engine; as the leased box
// it is bubblewrap, and any deadly signal ends the box at once.
func TestSignals(t *testing.T) {
	p := newPlace(t)
	cmd, out := start(t, p.botbox(nil, "run", "--standalone", "--", "sh", "-c", `
		trap 'echo usr1' USR1; trap 'echo hup' HUP; trap 'exit 9' TERM
		echo up; while :; do sleep 0.02; done`))
	line(t, out)
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGHUP} {
		cmd.Process.Signal(sig)
		if got := line(t, out); got != map[syscall.Signal]string{syscall.SIGUSR1: "usr1", syscall.SIGHUP: "hup"}[sig] {
			t.Errorf("%v reached the engine as %q", sig, got)
		}
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if code := rig.Code(cmd.Wait()); code != 9 {
		t.Errorf("standalone, TERM with a trap: %d", code)
	}
	ways(t, func(t *testing.T, p *place, run []string) {
		cmd, out := start(t, p.botbox(nil, with(run, "--", "sh", "-c", "echo up; exec sleep 300")...))
		line(t, out)
		cmd.Process.Signal(syscall.SIGTERM)
		if code := rig.Code(cmd.Wait()); code != 143 {
			t.Errorf("TERM: %d", code)
		}
	})
}

// The very first instruction of an engine may be a connect: with a bridge that
// is started beside it, 27 of 30 were refused.
func TestTheFirstConnectSucceeds(t *testing.T) {
	p := newPlace(t)
	p.serve()
	// One static program that connects to the three ports and does nothing
	// else: no shell is faster.
	connector := filepath.Join(p.top, "connector")
	if err := rig.Compile(connector, "./testbed/connector", "rig"); err != nil {
		t.Fatal(err)
	}
	const boxes = 1000
	refused := 0
	for i := range boxes {
		out := rig.Run(t, p.botbox(nil, "run", "--ro", connector, "--", connector, "127.0.0.1:3128", "127.0.0.1:18080", "127.0.0.1:8799"))
		if out.Code != 0 {
			refused++
			t.Logf("box %d: %s", i, out.Stderr)
		}
	}
	if refused != 0 {
		t.Errorf("%d of %d boxes had a first connect refused", refused, boxes)
	}
	// Positive control: the program does fail where nothing listens.
	if out := rig.Run(t, p.botbox(nil, "run", "--ro", connector, "--", connector, "127.0.0.1:9")); out.Code == 0 {
		t.Error("positive control: a port without a gate was reached")
	}
}

// A thousand boxes leave no process, no file and no grant behind.
func TestTheWorkerForgetsEndedBoxes(t *testing.T) {
	p := newPlace(t)
	worker := p.serve()
	files := func() int {
		e, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", worker.Process.Pid))
		return len(e)
	}
	rig.Run(t, p.botbox(nil, "run", "--", "true"))
	before := files()
	for range 50 {
		rig.Run(t, p.botbox([]string{"ANTHROPIC_API_KEY=sk-canary"}, "run", "--", "true"))
	}
	rig.Eventually(t, 2*time.Second, "the worker's files are back to what they were", func() bool { return files() <= before })
	if out := rig.Run(t, p.botbox(nil, "ps", "--json")); strings.TrimSpace(out.Stdout) != "[]" {
		t.Errorf("still listed: %s", out.Stdout)
	}
	if entries, _ := os.ReadDir(p.run); len(entries) != 2 {
		t.Errorf("in the run folder: %v", entries)
	}
}

func TestPsKillAndReport(t *testing.T) {
	p := newPlace(t)
	p.serve("OMB_BOT_BOX=1")
	cmd, out := start(t, p.botbox(nil, "run", "--bot", "b-12", "--conversation", "t-99", "--", "sh", "-c", "echo up; sleep 300"))
	line(t, out)
	ps := rig.Run(t, p.botbox(nil, "ps"))
	if !strings.Contains(ps.Stdout, "b-12") || !strings.Contains(ps.Stdout, "t-99") {
		t.Errorf("ps: %+v", ps)
	}
	id := strings.Fields(strings.Split(ps.Stdout, "\n")[1])[0]
	if kill := rig.Run(t, p.botbox(nil, "kill", id)); kill.Code != 0 {
		t.Errorf("kill: %+v", kill)
	}
	if code := rig.Code(cmd.Wait()); code != 137 {
		t.Errorf("the killed box ended with %d", code)
	}
	if again := rig.Run(t, p.botbox(nil, "kill", id)); again.Code != 100 || !strings.Contains(again.Stderr, "reason: no-such-box") {
		t.Errorf("kill of a box that is gone: %+v", again)
	}
	report := rig.Run(t, p.botbox(nil, "report", "--json"))
	if !strings.Contains(report.Stdout, `"box":"bwrap"`) || !strings.Contains(report.Stdout, `"boxed":1`) {
		t.Errorf("report: %+v", report)
	}
}
