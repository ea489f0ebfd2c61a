package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/provider"
	"github.com/openmausbot/botbox/testbed/rig"
)

// container is a supervisor in process and mount namespaces of its own, as a
// container's.
type container struct {
	*place
	pid1 string
}

func newContainer(t *testing.T) container {
	t.Helper()
	needsRoot(t)
	p := newPlace(t)
	_, unshare := p.supervised()
	// What an exec helper leaves behind is the runtime's, which looks for its status.
	subreaper(t, 1)
	t.Cleanup(func() { subreaper(t, 0) })
	return container{p, fmt.Sprint(children(unshare)[0])}
}

func subreaper(t *testing.T, on uintptr) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, on, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
}

func children(pid int) (all []int) {
	words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, word := range strings.Fields(string(words)) {
		var child int
		fmt.Sscan(word, &child)
		all = append(all, child)
	}
	return all
}

// exec prepares what a runtime's exec does: a helper outside joins the
// container and starts a process there, root's. before is said in front of it.
func (c container) exec(env, before []string, args ...string) *exec.Cmd {
	words := append([]string{"--target", c.pid1, "--pid", "--mount", "--"}, before...)
	words = append(words, filepath.Join(c.bin, "botbox"), "run", "--cwd", c.work)
	cmd := exec.Command("nsenter", append(words, args...)...)
	cmd.Env = append(append([]string{}, c.env...), env...)
	return cmd
}

// helperEnds waits until a started helper's process is botbox, and ends the helper some
// time later. It gives botbox, which is the test's own child from then on.
func helperEnds(t *testing.T, helper *exec.Cmd, after time.Duration) (botbox int) {
	t.Helper()
	rig.Eventually(t, 10*time.Second, "the helper's process is botbox", func() bool {
		for _, botbox = range children(helper.Process.Pid) {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", botbox))
			if string(name) == "botbox\n" || string(name) == "bwrap\n" {
				return true
			}
		}
		return false
	})
	time.Sleep(after)
	helper.Process.Kill()
	helper.Wait()
	return botbox
}

// ended gives the status of a process that was left behind.
func ended(t *testing.T, pid int) int {
	t.Helper()
	var status syscall.WaitStatus
	rig.Eventually(t, 20*time.Second, "it has ended", func() bool {
		n, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		if err != nil {
			t.Fatal(err)
		}
		return n == pid
	})
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// docker exec and its like start a process from outside its PID namespace, and
// end a moment later. That is not the end of whoever wants the box.
func TestAStarterOutsideThatEnds(t *testing.T) {
	c := newContainer(t)
	for _, after := range []time.Duration{0, 5, 20, 80, 300} {
		for round := range 4 {
			got := c.talk(t, func(helper *exec.Cmd) int { return ended(t, helperEnds(t, helper, after*time.Millisecond)) })
			if got != talked {
				t.Errorf("the starter ended %d ms after the start, round %d: %+v", after, round, got)
			}
		}
	}
	if got := c.talk(t, func(helper *exec.Cmd) int { return rig.Code(helper.Wait()) }); got != talked {
		t.Errorf("positive control, a starter that stays: %+v", got)
	}
}

// Whoever is seen by its starter is its box, with no process more.
func TestARunBecomesItsBox(t *testing.T) {
	p := newPlace(t)
	p.serve()
	cmd, out := start(t, p.botbox(nil, "run", "--", "sh", "-c", "echo up; sleep 300"))
	line(t, out)
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid)); string(name) != "bwrap\n" {
		t.Errorf("it is %q: %v", name, err)
	}
}

var talked = rig.Output{Stdout: "heard\n", Stderr: "botbox: a box never runs as root; this one runs as maus\nto stderr\n", Code: 7}

// talk runs a box whose command says what it hears until the end of that.
func (c container) talk(t *testing.T, wait func(helper *exec.Cmd) int) rig.Output {
	t.Helper()
	helper := c.exec(nil, nil, "--", "sh", "-c", "sleep 0.6; cat; echo to stderr >&2; exit 7")
	in, say := twoEnds(t)
	hear, stdout := twoEnds(t)
	listen, stderr := twoEnds(t)
	helper.Stdin, helper.Stdout, helper.Stderr = in, stdout, stderr
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	stdout.Close()
	stderr.Close()
	say.WriteString("heard\n")
	say.Close()
	code := wait(helper)
	out, _ := io.ReadAll(hear) // nobody of the box has them any more
	errs, _ := io.ReadAll(listen)
	return rig.Output{Stdout: string(out), Stderr: string(errs), Code: code}
}

func twoEnds(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// The exit status is the command's, and a deadly signal ends the box as it ends
// one that a process became.
func TestAnExecsStatusAndSignals(t *testing.T) {
	c := newContainer(t)
	for command, want := range map[string]int{"exit 0": 0, "exit 125": 125, "kill -TERM $$": 143, "kill -KILL $$": 137, "exec /no/such": 127} {
		cmd := c.exec(nil, nil, "--", "sh", "-c", "sleep 0.2; "+command)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if code := ended(t, helperEnds(t, cmd, 50*time.Millisecond)); code != want {
			t.Errorf("%s: %d, want %d", command, code, want)
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1} {
		botbox, m := c.left(t, nil, nil, "trap '' TERM INT HUP USR1;")
		syscall.Kill(botbox, sig)
		if code := ended(t, botbox); code != 128+int(sig) {
			t.Errorf("%v: %d", sig, code)
		}
		rig.Eventually(t, 2*time.Second, fmt.Sprintf("%v: the box is gone", sig), func() bool { return len(marked(t, m)) == 0 })
	}
}

// left starts a box whose helper has ended, and waits until it is up.
func (c container) left(t *testing.T, before, env []string, first string) (botbox int, m string) {
	t.Helper()
	m = mark(t)
	cmd := c.exec(env, before, "--", "sh", "-c", first+" setsid sh -c 'sleep 300; : "+m+"' & echo up; sleep 300; : "+m)
	hear, stdout := twoEnds(t)
	cmd.Stdout = stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdout.Close()
	botbox = helperEnds(t, cmd, 20*time.Millisecond)
	if n, _ := hear.Read(make([]byte, 16)); n == 0 {
		t.Fatalf("no box: it ended with %d", ended(t, botbox))
	}
	if n := len(marked(t, m)); n < 3 {
		t.Fatalf("positive control: only %d processes of the box are seen", n)
	}
	return botbox, m
}

// asUser is exec -u: root that becomes another user is not to be read anyway.
func asUser(t *testing.T) []string {
	u := rig.Account(t)
	return []string{"setpriv", "--reuid", u.Uid, "--regid", u.Gid, "--clear-groups"}
}

// Whoever stays a box's parent takes it along, whenever it is killed, and
// nobody of its user reads the keys that it was started with.
func TestAnExecThatIsKilled(t *testing.T) {
	c := newContainer(t)
	model := httptest.NewServer(provider.New(provider.Options{Key: "sk-canary", Reply: "ok"}))
	defer model.Close()
	key := []string{"ANTHROPIC_API_KEY=sk-canary", "ANTHROPIC_BASE_URL=" + model.URL}
	for _, victim := range []string{"caller", "engine", "pid 1"} {
		botbox, m := c.left(t, asUser(t), key, `echo "$ANTHROPIC_BASE_URL" >url;`)
		b, _ := os.ReadFile(filepath.Join(c.work, "url"))
		url := strings.TrimSpace(string(b)) + "/v1/messages"
		netns := engineNetwork(t, m)
		defer netns.Close()
		if status := callFrom(netns, url); status != "200" {
			t.Fatalf("positive control: the token answers %s while the box runs", status)
		}
		spy := rig.Command(t, "/", nil, "/bin/cat", fmt.Sprintf("/proc/%d/environ", botbox))
		if out := rig.Run(t, spy); out.Code == 0 {
			t.Errorf("a process of its user reads its environment: %q", out.Stdout)
		}
		pid := botbox
		if victim != "caller" {
			pid = inBox(t, m, map[string]int{"pid 1": 1, "engine": 2}[victim])
		}
		syscall.Kill(pid, syscall.SIGKILL)
		rig.Eventually(t, 2*time.Second, victim+" killed: the box is gone", func() bool { return len(marked(t, m)) == 0 })
		rig.Eventually(t, 2*time.Second, victim+" killed: the token is refused", func() bool { return callFrom(netns, url) != "200" })
		if code := ended(t, botbox); code != 137 {
			t.Errorf("%s killed: %d", victim, code)
		}
	}
	for range 25 { // in whatever moment of the start
		m := mark(t)
		cmd := c.exec(nil, nil, "--", "sh", "-c", "sleep 300; : "+m)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := rand.N(60 * time.Millisecond)
		botbox := helperEnds(t, cmd, after)
		syscall.Kill(botbox, syscall.SIGKILL)
		ended(t, botbox)
		rig.Eventually(t, 2*time.Second, fmt.Sprintf("killed %v after the start: the box is gone", after), func() bool { return len(marked(t, m)) == 0 })
	}
	rig.Eventually(t, 5*time.Second, "no box is listed", func() bool {
		return strings.TrimSpace(rig.Run(t, c.botbox(nil, "ps", "--json")).Stdout) == "[]"
	})
}

// A box that an exec started outlives its worker like any other.
func TestAnExecOutlivesTheWorker(t *testing.T) {
	c := newContainer(t)
	script := `while [ ! -e go ]; do sleep 0.02; done; curl -s -o /dev/null -w '%{http_code}' http://169.254.169.254/ >out; exit 9`
	cmd := c.exec(nil, nil, "--", "sh", "-c", script)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	botbox := helperEnds(t, cmd, 20*time.Millisecond)
	c.killWorker()
	rig.Eventually(t, 10*time.Second, "the worker listens", c.listens)
	rig.Write(t, filepath.Join(c.work, "go"), "")
	code := ended(t, botbox)
	if out, _ := os.ReadFile(filepath.Join(c.work, "out")); code != 9 || string(out) != "403" {
		t.Errorf("status %d, the gate's answer %q", code, out)
	}
}

// onExecsTerminal is docker exec -it: the process has a session and a terminal of its own.
func onExecsTerminal(t *testing.T, c container, command ...string) (*terminal, int) {
	t.Helper()
	cmd := c.exec([]string{"TERM=dumb"}, []string{"setsid", "--ctty", "--"}, append([]string{"--"}, command...)...)
	master, err := pty.StartWithAttrs(cmd, &pty.Winsize{Rows: 24, Cols: 80}, &syscall.SysProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	term := readTerminal(t, master)
	return term, helperEnds(t, cmd, 20*time.Millisecond)
}

func TestAnExecsTerminal(t *testing.T) {
	c := newContainer(t)
	t.Run("control-C is the command's", func(t *testing.T) {
		term, botbox := onExecsTerminal(t, c, "perl", "-e", catcher+`exit 5`)
		term.expect("up")
		term.send("\x03")
		term.expect("caught")
		if code := ended(t, botbox); code != 5 {
			t.Errorf("it ended with %d", code)
		}
	})
	t.Run("control-C ends what does not catch it", func(t *testing.T) {
		term, botbox := onExecsTerminal(t, c, "perl", "-e", `$| = 1; print "up\n"; sleep 300`)
		term.expect("up")
		term.send("\x03")
		if code := ended(t, botbox); code != 130 {
			t.Errorf("it ended with %d", code)
		}
	})
	t.Run("jobs of a shell in the box, and the end of its input", func(t *testing.T) {
		term, botbox := onExecsTerminal(t, c, "bash", "--norc", "-i")
		term.expect("$ ")
		term.send("PS1='inner''> '\n")
		term.expect("inner> ")
		term.send("sh -c 'echo up; exec cat'\n")
		term.expect("up\r\n")
		term.send("one\n")
		term.expect("one\r\none\r\n")
		term.fresh()
		term.send("\x1a")
		term.expect("Stopped")
		term.expect("inner> ")
		term.fresh()
		term.send("fg\n")
		term.expect("exec cat'\r\n")
		term.send("two\n")
		term.expect("two\r\ntwo\r\n")
		term.send("\x04")
		term.expect("inner> ")
		term.send("stty size; exit 3\n")
		term.expect("24 80")
		if code := ended(t, botbox); code != 3 {
			t.Errorf("it ended with %d", code)
		}
	})
	t.Run("a closed window", func(t *testing.T) {
		m := mark(t)
		term, botbox := onExecsTerminal(t, c, "sh", "-c", "setsid sleep 300 & echo up; sleep 300; : "+m)
		term.expect("up")
		term.tty.Close()
		rig.Eventually(t, 5*time.Second, "the box is gone with its window", func() bool { return len(marked(t, m)) == 0 })
		if code := ended(t, botbox); code != 129 {
			t.Errorf("it ended with %d", code)
		}
	})
}
