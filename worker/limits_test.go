package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// perl is in every Debian, and tells errno where a shell only gives up.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := os.Stat("/usr/bin/" + name); err != nil {
			rig.Missing(t, "%v", err)
		}
	}
}

// From inside, Landlock closes PID 1's environment and files as well; what is
// in them is seen from outside.
func TestPID1OfABoxHoldsNothing(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		m := mark(t)
		_, out := start(t, p.botbox(nil, with(run, "--", "sh", "-c", "cat /proc/1/environ 2>&1 | wc -c; ls /proc/1/fd 2>/dev/null | wc -l; sleep 300; : "+m)...))
		line(t, out)
		line(t, out)
		for _, pid := range marked(t, m) {
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if !strings.HasSuffix(field(string(status), "NSpid:"), "\t1") {
				continue
			}
			environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			files, err2 := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			if err != nil || err2 != nil || len(environ) != 0 || len(files) == 0 || len(files) > 4 {
				t.Errorf("PID 1 has the environment %q, %d files; %v, %v", environ, len(files), err, err2)
			}
			return
		}
		t.Error("the box's PID 1 was not found")
	})
}

const forkBomb = `
	$| = 1;
	for my $n (1 .. 2 * $ARGV[0]) {
		my $pid = fork;
		if (!defined $pid) { printf "%d %d\n", $!, $n - 1; sleep 60; exit }
		if (!$pid) { sleep 60; exit }
	}
	print "0 all\n"; sleep 60`

// A fork bomb ends at its own box's limit. The limit is not the user's: another
// box of the same user, at the same moment, still forks as much as it may.
func TestAForkBombStaysInItsBox(t *testing.T) {
	needs(t, "perl")
	ways(t, func(t *testing.T, p *place, run []string) {
		_, out := start(t, p.botbox(nil, with(run, "--pids", "64", "--", "perl", "-e", forkBomb, "64")...))
		got := strings.Fields(line(t, out))
		if started, err := strconv.Atoi(got[1]); got[0] != "11" || err != nil || started < 32 || started > 64 {
			t.Fatalf("errno and processes: %v, want 11 (EAGAIN) and at most 64", got)
		}
		other := rig.Run(t, p.botbox(nil, with(run, "--pids", "64", "--", "perl", "-e", `
			for (1 .. 40) { my $pid = fork; defined $pid or die "refused: $!"; if (!$pid) { sleep 60; exit } } print "forty"`)...))
		if other.Code != 0 || other.Stdout != "forty" {
			t.Errorf("another box beside the bomb: %+v", other)
		}
	})
}

// Every private folder stops at its size. /run is filled for real; where that
// would take the machine's memory, a file of one MiB more than the folder may
// hold is asked for whole, which the kernel refuses at once.
func TestPrivateFoldersStopAtTheirSize(t *testing.T) {
	needs(t, "fallocate")
	ways(t, func(t *testing.T, p *place, run []string) {
		out := rig.Run(t, p.botbox(nil, with(run, "--tmp-size", "8M", "--", "bash", "-c", `
			export LC_ALL=C
			fill() {
				stat -f -c '%b %S' "$1" | (read b s; echo "$1 $((b * s / 1048576))")
				fallocate -l 1M "$1/small" && rm "$1/small" || echo "$1 cannot be used"
				fallocate -l "$(($2 + 1))M" "$1/big" 2>&1 | grep -q 'No space left' || echo "$1 takes more"
			}
			fill /tmp 8; fill /run 64; fill /var/tmp 256; fill /dev/shm 256; fill "$HOME" 2048
			dd if=/dev/zero of=/run/full bs=1M count=80 2>&1 | grep -c 'No space left'
			stat -c %s /run/full`)...))
		want := "/tmp 8\n/run 64\n/var/tmp 256\n/dev/shm 256\n" + p.home + " 2048\n1\n"
		full, ok := strings.CutPrefix(out.Stdout, want)
		size, err := strconv.Atoi(strings.TrimSpace(full))
		if !ok || err != nil || size > 64<<20 || size < 60<<20 {
			t.Errorf("said\n%s%s, want\n%s and at most 64 MiB", out.Stdout, out.Stderr, want)
		}
	})
}

// runSpec runs a box of a spec, which can ask for more than flags can.
func (p *place) runSpec(run []string, limits, script string) rig.Output {
	p.t.Helper()
	cmd := p.botbox(nil, with(run, "--spec", "-")...)
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"v":1,"argv":["perl","-e",%q],"cwd":%q,"limits":%s}`, script, p.work, limits))
	return rig.Run(p.t, cmd)
}

func TestOpenFilesStopAtTheLimit(t *testing.T) {
	needs(t, "perl")
	ways(t, func(t *testing.T, p *place, run []string) {
		out := p.runSpec(run, `{"nofile":128}`,
			`while (1) { open(my $f, '<', '/dev/null') or do { printf '%d %d', $!, scalar @f; exit }; push @f, $f }`)
		got := strings.Fields(out.Stdout)
		if len(got) != 2 || got[0] != "24" {
			t.Fatalf("errno and files: %+v, want 24 (EMFILE)", out)
		}
		if n, _ := strconv.Atoi(got[1]); n < 100 || n > 128 {
			t.Errorf("%d files beside stdio", n)
		}
	})
}

// Time that is over ends a box: the engine is asked, and has its last word.
func TestTheWallClock(t *testing.T) {
	needs(t, "perl")
	p := newPlace(t)
	out := p.runSpec([]string{"run", "--standalone"}, `{"wall_s":1}`, `$SIG{TERM} = sub { print "asked"; exit 9 }; $| = 1; sleep 60`)
	if out.Code != 9 || out.Stdout != "asked" || !strings.Contains(out.Stderr, "time was over (limit 1s)") {
		t.Errorf("%+v", out)
	}
	// Control: one that ends before is not spoken of.
	out = p.runSpec([]string{"run", "--standalone"}, `{"wall_s":60}`, `print "done"`)
	if out.Code != 0 || out.Stdout != "done" || out.Stderr != "" {
		t.Errorf("in time: %+v", out)
	}
}

// A worker shows what bounds a box that runs, and remembers how it ended.
func TestAWorkerTellsHowABoxEnded(t *testing.T) {
	needs(t, "perl", "curl")
	p := newPlace(t)
	p.serve()
	look := func() string {
		return rig.Run(t, rig.Command(t, p.work, p.env, "curl", "-sS", "--unix-socket", filepath.Join(p.run, "api.sock"), "http://worker/v1/boxes/turn-1")).Stdout
	}
	if got := look(); !strings.Contains(got, "no-such-box") {
		t.Errorf("control: before there is one: %s", got)
	}
	cmd := p.botbox(nil, "run", "--spec", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"v":1,"id":"turn-1","argv":["perl","-e","$| = 1; print qq(up\n); sleep 60"],"cwd":%q,"limits":{"wall_s":2}}`, p.work))
	_, out := start(t, cmd)
	line(t, out)
	if got := look(); !strings.Contains(got, `"limits":{"cpu":"none","disk":"none","file":"none","memory":"none","pids":"rlimit"}`) || !strings.Contains(got, `"landlock":`) {
		t.Errorf("while it runs: %s", got)
	}
	if code := rig.Code(cmd.Wait()); code != 143 {
		t.Errorf("the box ended with %d", code)
	}
	rig.Eventually(t, 5*time.Second, "its end is told", func() bool {
		return strings.Contains(look(), `"end":"wall","code":143`)
	})
}

// A limit that cannot be held is refused and never ignored. Processes need no
// cgroup.
func TestALimitThatCannotBeHeldIsRefused(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		if out := rig.Run(t, p.botbox(nil, with(run, "--pids", "64", "--json", "--", "true")...)); out.Code != 0 ||
			!strings.Contains(out.Stderr, `"limits":{"cpu":"none","disk":"none","file":"none","memory":"none","pids":"rlimit"}`) || !strings.Contains(out.Stderr, `"landlock":`) {
			t.Errorf("control: %+v", out)
		}
		for _, limit := range [][]string{{"--memory", "512M"}, {"--cpu", "1.5"}} {
			out := rig.Run(t, p.botbox(nil, with(run, append(limit, "--", "sh", "-c", "echo ran")...)...))
			if out.Code == 0 && out.Stdout == "ran\n" {
				t.Skip("this user rules a cgroup here, so the limit holds")
			}
			if out.Code != 125 || !strings.Contains(out.Stderr, "reason: limits-unavailable") || !strings.Contains(out.Stderr, "Delegate=yes") || out.Stdout != "" {
				t.Errorf("%v: %+v", limit, out)
			}
		}
	})
}

// The box is what the kernel kills first when memory runs out.
func TestABoxDiesBeforeTheWorker(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		out := rig.Run(t, p.botbox(nil, with(run, "--", "cat", "/proc/self/oom_score_adj")...))
		if n, err := strconv.Atoi(strings.TrimSpace(out.Stdout)); err != nil || n < 500 {
			t.Errorf("%+v", out)
		}
	})
}

// quickest is the time of a box that does nothing, of several. The minimum is
// the box's own: the rest is what else this machine was doing.
func (p *place) quickest(run []string, tries int) time.Duration {
	all := make([]time.Duration, tries)
	for i := range all {
		begin := time.Now()
		if out := rig.Run(p.t, p.botbox(nil, with(run, "--", "true")...)); out.Code != 0 {
			p.t.Fatalf("a box beside another: %+v", out)
		}
		all[i] = time.Since(begin)
	}
	return slices.Min(all)
}

// beside compares boxes with and without something else going on, in turns: go
// must begin or end it.
func (p *place) beside(what string, run []string, disturb func(on bool)) {
	p.t.Helper()
	calm, busy := time.Hour, time.Hour
	for range 6 {
		disturb(false)
		calm = min(calm, p.quickest(run, 4))
		disturb(true)
		busy = min(busy, p.quickest(run, 4))
	}
	p.t.Logf("%s: a box takes %v, without it %v", what, busy, calm)
	if busy > 2*calm {
		p.t.Errorf("%s: a box takes %v, without it %v", what, busy, calm)
	}
}

// residentKB is the memory that a process has.
func residentKB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	words := strings.Fields(field(string(status), "VmRSS:"))
	if err != nil || len(words) < 2 {
		t.Fatalf("VmRSS of %d: %v", pid, err)
	}
	n, _ := strconv.Atoi(words[1])
	return n
}

const mayGrowKB = 32 << 10

// What a box prints never passes through the worker, so a flood of it costs
// neither the worker nor another box more than a busy processor does.
func TestAFloodOfOutputStopsNobody(t *testing.T) {
	p := newPlace(t)
	worker := p.serve()
	p.quickest([]string{"run"}, 5) // what the worker makes once
	before := residentKB(t, worker.Process.Pid)
	_, out := start(t, p.botbox(nil, "run", "--", "sh", "-c", "exec cat /dev/zero"))
	var on atomic.Bool
	var read atomic.Int64
	go func() { // when it does not read, the pipe is full and cat sleeps
		for b := make([]byte, 1<<20); ; {
			for !on.Load() {
				time.Sleep(time.Millisecond)
			}
			n, err := io.ReadFull(out, b)
			if read.Add(int64(n)); err != nil {
				return
			}
		}
	}()
	p.beside("a flood of output", []string{"run"}, on.Store)
	rig.Eventually(t, time.Minute, "1 GB came", func() bool { return read.Load() > 1e9 })
	if after := residentKB(t, worker.Process.Pid); after > before+mayGrowKB {
		t.Errorf("the worker grew from %d to %d KB", before, after)
	}
}

// One box opens ten thousand connections to its gate, and keeps as many as it
// is let. Another box's gate answers all the while.
func TestAFloodOfConnectionsStopsNobody(t *testing.T) {
	needs(t, "perl")
	p := newPlace(t)
	worker := p.serve()
	p.quickest([]string{"run"}, 5)
	before := residentKB(t, worker.Process.Pid)
	_, out := start(t, p.botbox(nil, "run", "--", "perl", "-e", `
		use Socket; $| = 1;
		my $to = sockaddr_in(3128, inet_aton("127.0.0.1"));
		for my $n (1 .. 10000) {
			socket(my $s, PF_INET, SOCK_STREAM, 0) or do { @kept = (); redo };
			connect($s, $to) or die "connection $n: $!";
			push @kept, $s;
			print "begun\n" if $n == 2000;
		}
		print "all\n"; sleep 60`))
	if got := line(t, out); got != "begun" {
		t.Fatalf("the flood: %q", got)
	}
	ask := func() rig.Output {
		return rig.Run(t, p.botbox(nil, "run", "--", "curl", "-sS", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", "http://10.0.0.1/"))
	}
	for range 5 {
		if out := ask(); out.Stdout != "403" {
			t.Errorf("another box's gate, beside the flood: %+v", out)
		}
	}
	if got := line(t, out); got != "all" {
		t.Errorf("the flood: %q", got)
	}
	if out := ask(); out.Stdout != "403" {
		t.Errorf("another box's gate, after the flood: %+v", out)
	}
	if after := residentKB(t, worker.Process.Pid); after > before+mayGrowKB {
		t.Errorf("the worker grew from %d to %d KB", before, after)
	}
}

// A hungry box beside another that only forks: the bomb at its limit sleeps, so
// this is the moment in which it goes off.
func TestABombGoingOffStopsNobody(t *testing.T) {
	needs(t, "perl")
	p := newPlace(t)
	p.serve()
	var stop func()
	p.beside("a fork bomb", []string{"run"}, func(on bool) {
		if !on {
			if stop != nil {
				stop()
			}
			return
		}
		cmd, out := start(t, p.botbox(nil, "run", "--pids", "64", "--", "perl", "-e", `$| = 1; print "up\n"; $SIG{CHLD} = 'IGNORE'; while (1) { defined(my $pid = fork) or next; $pid or exit }`))
		line(t, out)
		stop = func() { cmd.Process.Kill(); cmd.Wait() }
	})
}
