package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/rig"
)

// terminal runs a box on a terminal of its own and gives both.
type terminal struct {
	t    *testing.T
	tty  *os.File
	seen chan string
	all  bytes.Buffer
	end  chan int
}

func openTerminal(t *testing.T, p *place, run []string, command ...string) *terminal {
	t.Helper()
	return onTerminal(t, p.botbox([]string{"TERM=dumb"}, with(run, append([]string{"--"}, command...)...)...))
}

// onTerminal makes a command the leader of a session on a terminal of its own.
func onTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	blocking, err := pty.StartWithAttrs(cmd, &pty.Winsize{Rows: 24, Cols: 80}, cmd.SysProcAttr)
	if err != nil {
		t.Fatal(err)
	}
	term := readTerminal(t, blocking)
	term.end = make(chan int, 1)
	go func() { term.end <- rig.Code(cmd.Wait()) }()
	t.Cleanup(func() { cmd.Process.Kill() })
	return term
}

// readTerminal reads what comes on a terminal.
func readTerminal(t *testing.T, blocking *os.File) *terminal {
	t.Helper()
	// A blocked read would keep the terminal open although it is closed.
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	blocking.Close()
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty := os.NewFile(uintptr(fd), "terminal")
	term := &terminal{t: t, tty: tty, seen: make(chan string, 1024)}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := tty.Read(b)
			if n > 0 {
				term.seen <- string(b[:n])
			}
			if err != nil {
				close(term.seen)
				return
			}
		}
	}()
	t.Cleanup(func() { tty.Close() })
	return term
}

// expect reads until the text has been seen.
func (term *terminal) expect(text string) {
	term.t.Helper()
	if !term.sees(text, 15*time.Second) {
		term.t.Fatalf("no %q; seen %q", text, term.all.String())
	}
}

func (term *terminal) sees(text string, within time.Duration) bool {
	deadline := time.After(within)
	for !strings.Contains(term.all.String(), text) {
		select {
		case s, ok := <-term.seen:
			if !ok {
				return false // the terminal has closed
			}
			term.all.WriteString(s)
		case <-deadline:
			return false
		}
	}
	return true
}

func (term *terminal) send(text string) {
	term.t.Helper()
	if _, err := term.tty.WriteString(text); err != nil {
		term.t.Fatal(err)
	}
}

func (term *terminal) status() int {
	term.t.Helper()
	select {
	case code := <-term.end:
		return code
	case <-time.After(15 * time.Second):
		term.t.Fatalf("the box did not end; seen %q", term.all.String())
		return -1
	}
}

// catcher lives on after Control-C, and goes on. It is no shell: dash loses a
// SIGINT that comes while it forks, with a box and without.
const catcher = `$| = 1; $SIG{INT} = sub { $caught = 1 }; print "up\n"; select undef, undef, undef, 0.02 until $caught; print "caught\n"; `

// Control-C is the command's: one that catches it lives on, one that does not
// ends with 130, and either way nothing else of the box does.
func TestControlC(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		term := openTerminal(t, p, run, "perl", "-e", catcher+`exit 5`)
		term.expect("up")
		term.send("\x03")
		term.expect("caught")
		if code := term.status(); code != 5 {
			t.Errorf("caught: %d", code)
		}
		term = openTerminal(t, p, run, "sh", "-c", `echo up; exec sleep 300`)
		term.expect("up")
		term.send("\x03")
		if code := term.status(); code != 130 {
			t.Errorf("not caught: %d", code)
		}
	})
}

// A shell in a box has job control, knows the size of its terminal and is told
// when that changes.
func TestAShellOnATerminal(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		term := openTerminal(t, p, run, "bash", "--norc", "-i")
		term.send("PS1='ready> '\n")
		term.expect("\nready> ")
		term.send("sleep 300 &\njobs; stty size\n")
		term.expect("Running")
		term.expect("24 80")
		if err := pty.Setsize(term.tty, &pty.Winsize{Rows: 30, Cols: 100}); err != nil {
			t.Fatal(err)
		}
		term.send("stty size\n")
		term.expect("30 100")
		term.send("exit 6\nexit 6\n")
		if code := term.status(); code != 6 {
			t.Errorf("the shell ended with %d", code)
		}
	})
}

// A box must not type on its caller's terminal (CVE-2017-5226), not even with
// a request whose high word is set.
func TestABoxCannotTypeOnTheTerminal(t *testing.T) {
	p := newPlace(t)
	typist := p.top + "/typist"
	if err := rig.Compile(typist, "./testbed/typist", "rig"); err != nil {
		t.Fatal(err)
	}
	term := openTerminal(t, p, []string{"run", "--standalone", "--ro", typist}, typist)
	term.expect("tried")
	if strings.Contains(term.all.String(), "typed") {
		t.Errorf("the box typed on its terminal: %q", term.all.String())
	}
	term.status()
}

// fresh forgets what has been seen.
func (term *terminal) fresh() { term.all.Reset() }

// A person at a shell stops a box, looks at something else, and goes on with
// it: Control-Z stops it whole, and fg brings it back with the terminal.
func TestStopAndContinueFromAShell(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		shell := p.botbox([]string{"TERM=dumb", "PS1=outer> "})
		box := strings.Join(with([]string{shell.Path}, with(run, "--", "sh", "-c", "'echo up; exec cat'")...), " ")
		shell.Path, shell.Args = "/bin/bash", []string{"bash", "--norc", "-i"}
		term := onTerminal(t, shell)
		term.expect("outer> ")
		term.send(box + "\n")
		term.expect("up\r\n")
		term.send("one\n")
		term.expect("one\r\none\r\n") // the terminal's echo, and cat's
		term.fresh()
		term.send("\x1a")
		term.expect("Stopped")
		term.expect("outer> ")
		for range 5 { // bash may throw away what is typed just after a job has stopped
			term.send("echo $((40 + 2)) is mine\n")
			if term.sees("42 is mine\r\nouter> ", 2*time.Second) {
				break
			}
		}
		term.expect("42 is mine\r\nouter> ")
		term.fresh()
		term.send("fg\n")
		term.expect("exec cat'\r\n")
		term.send("two\n")
		term.expect("two\r\ntwo\r\n")
		term.fresh()
		term.send("\x04")
		term.expect("outer> ")
		term.send("echo status $?\n")
		term.expect("status 0\r\n")
		term.send("exit\n")
		term.status()
	})
}

// A full-screen program takes the whole terminal, follows its size, and gives
// it back as it was.
func TestAFullScreenProgram(t *testing.T) {
	if _, err := exec.LookPath("less"); err != nil {
		rig.Missing(t, "less")
	}
	ways(t, func(t *testing.T, p *place, run []string) {
		var rows strings.Builder
		for i := range 100 {
			fmt.Fprintf(&rows, "row-%02d\n", i)
		}
		rig.Write(t, p.work+"/rows", rows.String())
		term := openTerminal(t, p, run, "sh", "-c", "TERM=xterm less rows; stty -a; exit 4")
		term.expect("\x1b[?1049h") // the other screen
		term.expect("row-22")
		if strings.Contains(term.all.String(), "row-23") {
			t.Errorf("more than 24 rows on the screen: %q", term.all.String())
		}
		if err := pty.Setsize(term.tty, &pty.Winsize{Rows: 40, Cols: 80}); err != nil {
			t.Fatal(err)
		}
		term.send("r") // less alone loses a SIGWINCH that comes just before it reads
		term.expect("row-38")
		term.send("/row-77\n")
		term.expect("row-77")
		term.send("q")
		term.expect("\x1b[?1049l") // and back
		term.expect(" icanon")     // as it was
		if code := term.status(); code != 4 {
			t.Errorf("it ended with %d", code)
		}
	})
}

// A closed window ends the box whole, its background jobs too.
func TestAClosedWindow(t *testing.T) {
	for name, script := range map[string]string{
		"a command": "setsid sleep 300 & echo up; sleep 300; : %s",
		"a shell":   "bash --norc -ic 'sleep 300 & setsid sleep 300 & echo up; read x; : %s'",
	} {
		t.Run(name, func(t *testing.T) {
			ways(t, func(t *testing.T, p *place, run []string) {
				m := mark(t)
				term := openTerminal(t, p, run, "sh", "-c", fmt.Sprintf(script, m))
				term.expect("up")
				if len(marked(t, m)) == 0 {
					t.Fatal("positive control: no process of the box is seen")
				}
				term.tty.Close()
				rig.Eventually(t, 5*time.Second, "the box is gone with its window", func() bool { return len(marked(t, m)) == 0 })
			})
		})
	}
}

// Control-C under script, which makes a terminal of its own, leaves nothing
// behind (bubblewrap#726).
func TestControlCUnderScript(t *testing.T) {
	if _, err := exec.LookPath("script"); err != nil {
		rig.Missing(t, "script")
	}
	ways(t, func(t *testing.T, p *place, run []string) {
		m := mark(t)
		cmd := p.botbox([]string{"SHELL=/bin/sh"})
		line := strings.Join(with([]string{cmd.Path}, with(run, "--", "perl", "-e", `'$| = 1; print "up\n"; sleep 300; # `+m+"'")...), " ")
		cmd.Path, cmd.Args = "/usr/bin/script", []string{"script", "-qec", line, "/dev/null"}
		term := onTerminal(t, cmd)
		term.expect("up\r\n")
		if len(marked(t, m)) == 0 {
			t.Fatal("positive control: no process of the box is seen")
		}
		term.send("\x03")
		if code := term.status(); code != 130 {
			t.Errorf("it ended with %d", code)
		}
		rig.Eventually(t, 5*time.Second, "nothing is left", func() bool { return len(marked(t, m)) == 0 })
	})
}

// Control-C is a signal to what is in the box, and the gates are not in it
// (lince PR#275).
func TestTheGatesOutliveControlC(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		term := openTerminal(t, p, run, "perl", "-e", catcher+`exec "curl", "-s", "-o", "/dev/null", "-w", '%{http_code}\n', "--noproxy", "", "http://169.254.169.254/"`)
		term.expect("up")
		term.send("\x03")
		term.expect("caught")
		term.expect("403\r\n")
		if code := term.status(); code != 0 {
			t.Errorf("it ended with %d", code)
		}
	})
}
