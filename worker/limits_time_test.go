package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// patient does a thing four times a second, for three seconds, and little else.
const patient = `$| = 1; print "up\n"; for (1 .. 12) { select undef, undef, undef, 0.25; %s } print "done\n"`

// A box that does nothing ends when its idle time is over. The last one is the
// control for what keeps the others going: without it, they would have ended.
func TestIdleTime(t *testing.T) {
	needs(t, "perl")
	ways(t, func(t *testing.T, p *place, run []string) {
		for what, c := range map[string]struct {
			does string
			idle bool
		}{
			"computes":           {`my $n; $n++ while $n < 1_000_000;`, false},
			"starts processes":   {`system "true";`, false},
			"talks to its gate":  {`use IO::Socket; my $s = IO::Socket::INET->new("127.0.0.1:3128") or die; print $s "GET http://10.0.0.1/ HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n"; sysread $s, $_, 4096 or die "the gate hung up";`, false},
			"has a quiet child":  {`BEGIN { fork or do { sleep 60; exit } }`, true},
			"prints and waits":   {`print ".";`, true},
			"only keeps waiting": {``, true},
		} {
			begin := time.Now()
			out := p.runSpec(run, `{"idle_s":1}`, fmt.Sprintf(patient, c.does))
			switch {
			case !c.idle && (out.Code != 0 || !strings.HasSuffix(out.Stdout, "done\n")):
				t.Errorf("%s: %+v", what, out)
			case c.idle && (out.Code != 143 || strings.Contains(out.Stdout, "done") || time.Since(begin) < time.Second):
				t.Errorf("%s: %+v after %v", what, out, time.Since(begin))
			case c.idle && run[len(run)-1] == "--standalone" && !strings.Contains(out.Stderr, "did nothing for too long (limit 1s)"):
				t.Errorf("%s: said %q", what, out.Stderr)
			}
		}
	})
}

// Whoever is asked to end because of idleness and does not is killed.
func TestAnIdleBoxThatWillNotGo(t *testing.T) {
	needs(t, "perl")
	p := newPlace(t)
	begin := time.Now()
	out := p.runSpec([]string{"run", "--standalone"}, `{"idle_s":1}`, `$SIG{TERM} = 'IGNORE'; $| = 1; print "up"; sleep 60 while 1`)
	if took := time.Since(begin); out.Code != 137 || out.Stdout != "up" || took < 6*time.Second || took > 30*time.Second {
		t.Errorf("%+v after %v", out, took)
	}
}

// Somebody who types keeps a box going whose engine has next to nothing to do.
func TestTypingIsNotIdle(t *testing.T) {
	p := newPlace(t)
	file := filepath.Join(p.top, "spec")
	rig.Write(t, file, fmt.Sprintf(`{"v":1,"tty":true,"argv":["cat"],"cwd":%q,"limits":{"idle_s":1}}`, p.work))
	term := onTerminal(t, p.botbox([]string{"TERM=dumb"}, "run", "--standalone", "--spec", file))
	for n := range 10 {
		term.send(fmt.Sprintf("line %d\n", n))
		time.Sleep(300 * time.Millisecond)
	}
	term.send("still here\n")
	if !term.sees("still here\r\nstill here", 5*time.Second) { // the terminal's echo, and cat's
		t.Fatalf("saw %q", term.all.String())
	}
	if code := term.status(); code != 143 {
		t.Errorf("once nobody typed it ended with %d", code)
	}
}

// A worker remembers why it ended a box, and says so in its log.
func TestAWorkerTellsOfAnIdleBox(t *testing.T) {
	needs(t, "curl")
	p := newPlace(t)
	p.serve()
	cmd := p.botbox(nil, "run", "--spec", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"v":1,"id":"turn-1","argv":["sleep","60"],"cwd":%q,"limits":{"idle_s":1}}`, p.work))
	if out := rig.Run(t, cmd); out.Code != 143 {
		t.Errorf("%+v", out)
	}
	look := rig.Command(t, p.work, p.env, "curl", "-sS", "--unix-socket", filepath.Join(p.run, "api.sock"), "http://worker/v1/boxes/turn-1")
	if out := rig.Run(t, look); !strings.Contains(out.Stdout, `"end":"idle","code":143`) {
		t.Errorf("%+v", out)
	}
}

// A file stops at its limit, in the work folder as in memory. A program that
// does not expect that dies of SIGXFSZ.
func TestTheLargestFile(t *testing.T) {
	needs(t, "perl")
	ways(t, func(t *testing.T, p *place, run []string) {
		out := p.runSpec(run, `{"file_mb":2}`, `$| = 1; $SIG{XFSZ} = 'IGNORE';
			for my $in (".", "/tmp") {
				open(my $f, '>', "$in/big") or die; my $n = 0;
				while ($n < 4) { syswrite($f, "x" x 1048576) // last; $n++ }
				print "$in $n ", $!+0, " ", -s "$in/big", "; ";
			}
			$SIG{XFSZ} = 'DEFAULT'; open(my $f, '>>', "big"); syswrite $f, "x"; print "not reached"`)
		if out.Code != 128+25 || out.Stdout != ". 2 27 2097152; /tmp 2 27 2097152; " {
			t.Errorf("%+v, want two files of 2 MiB, EFBIG (27) and then SIGXFSZ", out)
		}
		out = p.runSpec(run, `{}`, `open(my $f, '>', "big"); print syswrite($f, "x" x 4194304)`)
		if out.Stdout != "4194304" {
			t.Errorf("control: without the limit: %+v", out)
		}
	})
}

// A box that fills the disk is ended before it is full.
func TestADiskIsNotFilled(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, to mount a small disk in a namespace of its own")
	}
	needs(t, "perl")
	p := newPlace(t)
	writer := `$| = 1; for (1 .. 60) { open(my $f, '>', "part$_") or die; syswrite $f, "x" x 1048576; select undef, undef, undef, 0.05 } print "wrote all"`
	for leave, want := range map[int]int{0: 0, 32: 137, 100: 125} {
		file := filepath.Join(p.top, "spec")
		rig.Write(t, file, fmt.Sprintf(`{"v":1,"argv":["perl","-e",%q],"cwd":%q,"limits":{"disk_free_mb":%d}}`, writer, p.work, leave))
		script := `mount --make-rprivate / && mount -t tmpfs -o size=64m,mode=777 disk ` + p.work + ` && cd ` + p.work + ` || exit
			setpriv --reuid maus --regid maus --clear-groups ` + filepath.Join(p.bin, "botbox") + ` run --standalone --spec ` + file + `
			status=$?; echo; stat -f -c '%a %S' . | (read b s; echo "$((b * s / 1048576))"); exit $status`
		cmd := exec.Command("unshare", "-m", "sh", "-c", script)
		cmd.Env = p.env
		out := rig.Run(t, cmd)
		lines := strings.Split(strings.TrimSpace(out.Stdout), "\n")
		free, err := strconv.Atoi(lines[len(lines)-1])
		switch {
		case err != nil || out.Code != want:
			t.Errorf("to leave %d: %+v, %v", leave, out, err)
		case leave == 0 && (free > 4 || lines[0] != "wrote all"):
			t.Errorf("control: without a limit %d are left: %+v", free, out)
		case leave == 32 && (free < 8 || free >= 32 || !strings.Contains(out.Stderr, "too full for the box to go on (limit 32M free)")):
			t.Errorf("%d are left: %+v", free, out)
		case leave == 100 && (free != 64 || !strings.Contains(out.Stderr, "reason: limits-unavailable") || !strings.Contains(out.Stderr, "make room")):
			t.Errorf("a disk that is smaller than what is to be left: %+v", out)
		}
	}
}
