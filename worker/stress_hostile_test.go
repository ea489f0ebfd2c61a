package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/rig"
)

// dial connects to the lease socket as any program of the user can.
func (p *place) dial() *net.UnixConn {
	p.t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(p.run, "lease.sock"), Net: "unixpacket"})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	return conn
}

// fiveBoxes gives the shortest of five boxes, and the longest.
func (p *place) fiveBoxes() (shortest, longest time.Duration) {
	p.t.Helper()
	for i := range 5 {
		begin := time.Now()
		if out := rig.Run(p.t, p.botbox(nil, "run", "--", "true")); out.Code != 0 {
			p.t.Fatalf("%+v", out)
		}
		took := time.Since(begin)
		if longest = max(longest, took); i == 0 || took < shortest {
			shortest = took
		}
	}
	return shortest, longest
}

// A hundred callers that say nothing, half of it, or far too much take no box
// from anybody else, and keep no file of the worker's.
func TestSlowAndHostileLeaseCallers(t *testing.T) {
	p := newPlace(t)
	worker := p.settled()
	_, usual := p.fiveBoxes()
	before := p.footprint(worker)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	many := make([]int, 253) // what the kernel lets through in one message
	for i := range many {
		many[i] = int(null.Fd())
	}
	var silent *net.UnixConn
	var callers []*net.UnixConn
	for i := range 100 {
		conn := p.dial()
		callers = append(callers, conn)
		packet, rights := "", []int(nil)
		switch i % 5 {
		case 0:
			silent = conn
			continue
		case 1:
			packet = `{"argv":["tr`
		case 2:
			packet, rights = `{"argv":["true"],"cwd":"`+p.work+`"}`, many
		case 3:
			packet, rights = "spec", many[:1]
		case 4:
			conn.Close()
			continue
		}
		if _, _, err := conn.WriteMsgUnix([]byte(packet), rightsOf(rights), nil); err != nil {
			t.Fatal(err)
		}
	}
	if best, _ := p.fiveBoxes(); best > 5*usual {
		t.Errorf("a box takes %v beside them, %v before", best, usual)
	}
	if !testing.Short() { // it is told, and let go
		silent.SetReadDeadline(time.Now().Add(30 * time.Second))
		answer := make([]byte, 4096)
		if n, err := silent.Read(answer); err != nil || !strings.Contains(string(answer[:n]), `"bad_spec"`) {
			t.Errorf("a caller that says nothing: %s, %v", answer[:n], err)
		}
	}
	for _, conn := range callers {
		conn.Close()
	}
	p.shrinksTo(worker, before)
}

// stubborn are boxes that do not end when they are asked. Each prints a line
// first; the last one's caller is stopped, as by Control-Z.
var stubborn = []struct {
	name, script string
	drained      int // its status when a worker stops: some hear a TERM
}{
	{"ignores every signal that it can", "trap '' TERM INT HUP QUIT USR1 USR2; echo up; while :; do sleep 300; done; : ", 137},
	{"fills its pipe", "echo up; yes; : ", 143},
	{"has stopped itself", "echo up; kill -STOP $$; : ", 137},
	{"has stopped all that is in it", "sleep 300 & echo up; kill -STOP -1; kill -STOP $$; : ", 137},
	{"is stopped from outside", "echo up; sleep 300; : ", 143},
}

// startStubborn starts all of them, and gives their callers and engines. They
// are gone when the test ends.
func (p *place) startStubborn(mark string) (commands []*exec.Cmd, boxes []listedBox) {
	p.t.Helper()
	for i, s := range stubborn {
		cmd, out := start(p.t, p.botbox(nil, "run", "--bot", fmt.Sprint("b-", i), "--", "sh", "-c", s.script+mark))
		line(p.t, out)
		commands = append(commands, cmd)
	}
	last := commands[len(commands)-1]
	last.Process.Signal(syscall.SIGSTOP)
	p.t.Cleanup(func() { last.Process.Signal(syscall.SIGCONT) })
	boxes = p.listed() // in the order of their start
	if len(boxes) != len(stubborn) {
		p.t.Fatalf("%d boxes are listed", len(boxes))
	}
	for i, s := range stubborn {
		if strings.Contains(s.script, "-STOP $$") {
			rig.Eventually(p.t, 10*time.Second, "the engine has stopped", func() bool {
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", boxes[i].Pid))
				return strings.Contains(string(b), ") T ")
			})
		}
	}
	return commands, boxes
}

func TestKillEndsAStubbornBox(t *testing.T) {
	p := newPlace(t)
	worker := p.settled()
	rig.Run(t, p.botbox(nil, "run", "--", "true"))
	before := p.footprint(worker)
	m := mark(t)
	commands, boxes := p.startStubborn(m)
	for i, b := range boxes {
		if out := rig.Run(t, p.botbox(nil, "kill", b.ID)); out.Code != 0 {
			t.Errorf("a box that %s: kill: %+v", stubborn[i].name, out)
		}
		if unix.Kill(b.Pid, 0) == nil {
			t.Errorf("a box that %s: its engine lives after kill has returned", stubborn[i].name)
		}
	}
	p.shrinksTo(worker, before)
	commands[len(commands)-1].Process.Signal(syscall.SIGCONT)
	for i, cmd := range commands {
		if code := rig.Code(cmd.Wait()); code != 137 {
			t.Errorf("a box that %s ended with %d", stubborn[i].name, code)
		}
	}
	rig.Eventually(t, time.Second, "nobody survives", func() bool { return len(marked(t, m)) == 0 })
}

func TestDrainEndsStubbornBoxes(t *testing.T) {
	p := newPlace(t)
	worker := p.serve("OMB_DRAIN_SECONDS=5")
	m := mark(t)
	commands, boxes := p.startStubborn(m)
	begin := time.Now()
	worker.Process.Signal(syscall.SIGTERM)
	if code := rig.Code(worker.Wait()); code != 0 || time.Since(begin) > 6*time.Second {
		t.Errorf("the worker ended with %d after %v", code, time.Since(begin))
	}
	for i, b := range boxes {
		if unix.Kill(b.Pid, 0) == nil {
			t.Errorf("a box that %s outlives its worker", stubborn[i].name)
		}
	}
	commands[len(commands)-1].Process.Signal(syscall.SIGCONT)
	for i, cmd := range commands {
		if code := rig.Code(cmd.Wait()); code != stubborn[i].drained {
			t.Errorf("a box that %s ended with %d, want %d", stubborn[i].name, code, stubborn[i].drained)
		}
	}
	rig.Eventually(t, time.Second, "nobody survives", func() bool { return len(marked(t, m)) == 0 })
}

// Workers that are killed, again and again, leave sockets and a database that
// the next one takes over; while one lives, a second one is refused. What
// ran in a box of a dead worker ends with the status of its own.
func TestTakeoverAfterSIGKILL(t *testing.T) {
	p := newPlace(t)
	rounds := scaled(20, 4)
	for round := range rounds {
		worker := p.botbox(nil, "serve")
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { worker.Process.Kill() })
		rig.Eventually(t, 10*time.Second, "the worker answers", func() bool {
			return rig.Run(t, p.botbox(nil, "ps")).Code == 0
		})
		if round == 0 {
			second := rig.Run(t, p.botbox(nil, "serve"))
			if second.Code != 100 && second.Code != 111 || !strings.Contains(second.Stderr, "reason: ") {
				t.Errorf("a second worker: %+v", second)
			}
		}
		m := mark(t)
		cmd, out := start(t, p.botbox(nil, "run", "--", "sh", "-c", "echo up; while [ ! -e "+m+" ]; do sleep 0.02; done; exit 7"))
		line(t, out)
		worker.Process.Kill()
		worker.Wait()
		rig.Write(t, filepath.Join(p.work, m), "")
		if code := rig.Code(cmd.Wait()); code != 7 {
			t.Errorf("round %d: the box of a dead worker ended with %d, want its own 7", round, code)
		}
	}
	os.Remove(filepath.Join(p.run, "api.sock")) // serve waits for the new one
	p.serve()
	if out := rig.Run(t, p.botbox(nil, "run", "--", "echo", "ran")); out.Stdout != "ran\n" {
		t.Errorf("after %d kills: %+v", rounds, out)
	}
	for dir, want := range map[string]string{p.run: "[api.sock lease.sock]", p.state: "[audit.log botbox.db report.key]"} {
		entries, err := os.ReadDir(dir)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if fmt.Sprint(names) != want || err != nil {
			t.Errorf("in %s: %v, %v", filepath.Base(dir), names, err)
		}
	}
}
