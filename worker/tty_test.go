package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

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
	cmd := p.botbox([]string{"TERM=dumb"}, with(run, append([]string{"--"}, command...)...)...)
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	tty, err := pty.StartWithAttrs(cmd, &pty.Winsize{Rows: 24, Cols: 80}, cmd.SysProcAttr)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, tty: tty, seen: make(chan string, 1024), end: make(chan int, 1)}
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
	go func() { term.end <- rig.Code(cmd.Wait()) }()
	t.Cleanup(func() { cmd.Process.Kill(); tty.Close() })
	return term
}

// expect reads until the text has been seen.
func (term *terminal) expect(text string) {
	term.t.Helper()
	deadline := time.After(15 * time.Second)
	for !strings.Contains(term.all.String(), text) {
		select {
		case s, ok := <-term.seen:
			if !ok {
				term.t.Fatalf("the terminal closed before %q; seen %q", text, term.all.String())
			}
			term.all.WriteString(s)
		case <-deadline:
			term.t.Fatalf("no %q; seen %q", text, term.all.String())
		}
	}
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

// Control-C is the command's: one that catches it lives on, one that does not
// ends with 130, and either way nothing else of the box does.
func TestControlC(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		term := openTerminal(t, p, run, "sh", "-c", `trap 'echo caught' INT; echo up; while [ ! -e done ]; do sleep 0.05; done; exit 5`)
		term.expect("up")
		term.send("\x03")
		term.expect("caught")
		rig.Write(t, p.work+"/done", "")
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
