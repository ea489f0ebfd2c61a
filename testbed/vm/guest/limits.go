package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// alone runs a command as whoever we are.
func alone(argv ...string) output {
	cmd := exec.Command(argv[0], argv[1:]...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		return output{code: -1, stderr: err.Error()}
	}
	return output{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

const bomb = `$| = 1; print "up\n"; my $n = 0;
	while ($n < 500) { my $pid = fork; if (!defined $pid) { last } if (!$pid) { sleep 60; exit } $n++ }
	print "$n $!\n"; sleep 60`

// forkBomb goes off in one box, and another one starts all the same. That the
// cgroup bounds it too, and not only the box's own limit of processes, is seen
// when the cgroup's is the lower one.
func forkBomb(b *bed) (string, error) {
	r, err := b.box("bomb", `{"pids":64}`, bomb)
	if err != nil {
		return "", err
	}
	defer r.kill()
	group := b.part("box-bomb")
	if err := eventually(20*time.Second, func() bool { return strings.Count(r.out.String(), "\n") == 2 }); err != nil {
		return r.out.String(), fmt.Errorf("the bomb goes on: %w", err)
	}
	var started, current int
	fmt.Sscan(strings.Split(r.out.String(), "\n")[1], &started)
	fmt.Sscan(read(group, "pids.current"), &current)
	if read(group, "pids.max") != "65" || started < 32 || started > 64 || current > 65 {
		return r.out.String(), fmt.Errorf("pids.max %s, %d started, pids.current %d", read(group, "pids.max"), started, current)
	}
	other := b.botbox("run", "--pids", "64", "--memory", "64M", "--", "perl", "-e", `for (1 .. 20) { my $p = fork // die "refused: $!"; $p or do { sleep 9; exit } } print "twenty"`)
	if other.code != 0 || other.stdout != "twenty" {
		return other.String(), errors.New("another box does not start beside the bomb")
	}
	low, err := b.box("low", `{"pids":400}`, `$| = 1; print "up\n"; sleep 1 until -e "go"; `+bomb)
	if err != nil {
		return "", err
	}
	defer low.kill()
	os.WriteFile(b.part("box-low", "pids.max"), []byte("20"), 0o644)
	os.WriteFile(work+"/go", nil, 0o644)
	defer os.Remove(work + "/go")
	if err := eventually(20*time.Second, func() bool { return strings.Count(low.out.String(), "\n") == 3 }); err != nil {
		return low.out.String(), fmt.Errorf("a lower pids.max bounds nothing: %w", err)
	}
	hits := value(read(b.part("box-low", "pids.events")), "max")
	if now := read(b.part("box-low", "pids.current")); now != "20" || hits == 0 {
		return low.out.String(), fmt.Errorf("pids.current %s under a pids.max of 20, %d refused", now, hits)
	}
	return fmt.Sprintf("%d processes, then %s; the cgroup alone refused %d", started, strings.Split(r.out.String(), "\n")[1], hits), nil
}

// hog takes four times what it may.
const hog = `$| = 1; print "up\n"; my @all; for (1 .. 256) { push @all, "x" x 1048576 } print "had it all\n"`

// memoryHog ends with the reason oom, with the worker untouched.
func memoryHog(b *bed) (string, error) {
	worker := find("serve --control")
	r, err := b.box("hog", `{"memory_mb":64}`, hog)
	if err != nil {
		return "", err
	}
	group := b.part("box-hog")
	limits := read(group, "memory.max") + " " + read(group, "memory.swap.max") + " " + read(group, "memory.oom.group")
	out := r.end()
	var told string
	if limits != "67108864 0 1" {
		return out.String(), fmt.Errorf("memory.max, swap.max, oom.group: %s", limits)
	}
	err = eventually(10*time.Second, func() bool {
		told, _ = b.get("/v1/boxes/hog")
		return strings.Contains(told, `"end":"oom"`)
	})
	if err != nil || out.code != 137 || out.stdout != "up\n" {
		return told + out.String(), errors.New("it did not end of its memory")
	}
	if now := find("serve --control"); len(now) != 1 || len(worker) != 1 || now[0] != worker[0] {
		return fmt.Sprint(worker, now), errors.New("the worker did not live through it")
	}
	if _, err := os.Stat(group); err == nil {
		return group, errors.New("its cgroup is still there")
	}
	// Control: what fits is let live.
	fits := b.botbox("run", "--memory", "64M", "--", "perl", "-e", `my @a; for (1 .. 8) { push @a, "x" x 1048576 } print "had it all"`)
	if fits.code != 0 || fits.stdout != "had it all" {
		return fits.String(), errors.New("control: a box that fits ended")
	}
	return strings.TrimSpace(told), nil
}

// memoryHogAlone: without a worker, in a cgroup that somebody gave to maus, the
// words are on the command's own stderr.
func memoryHogAlone(b *bed) (string, error) {
	dir := filepath.Join(b.group, "alone")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	uid, gid := account()
	for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if err := os.Chown(filepath.Join(dir, name), uid, gid); err != nil {
			return "", err
		}
	}
	defer func() { os.Remove(dir + "/botbox-worker"); os.Remove(dir) }()
	out := b.in(dir, programs+"/botbox", "run", "--standalone", "--memory", "64M", "--", "perl", "-e", hog)
	if out.code != 137 || !strings.Contains(out.stderr, "ran out of memory (limit 64M)") {
		return out.String(), errors.New("it does not say why")
	}
	if left, _ := filepath.Glob(dir + "/box-*"); len(left) > 0 {
		return fmt.Sprint(left), errors.New("its cgroup is still there")
	}
	return strings.ReplaceAll(out.stderr, "\n", "; "), nil
}

const spin = `$| = 1; print "up\n"; 1 while 1`

// cpuLimit compares a box that may have a fifth of a processor with one that
// may have all of it.
func cpuLimit(b *bed) (string, error) {
	used := func(id, limits string) (throttled int, share float64, err error) {
		r, err := b.box(id, limits, spin)
		if err != nil {
			return 0, 0, err
		}
		defer r.kill()
		stat := func() string { return read(b.part("box-"+id), "cpu.stat") }
		from, begin := value(stat(), "usage_usec"), time.Now()
		time.Sleep(2 * time.Second)
		share = float64(value(stat(), "usage_usec")-from) / float64(time.Since(begin).Microseconds())
		return value(stat(), "nr_throttled"), share, nil
	}
	held, low, err := used("slow", `{"cpu":0.2}`)
	free, high, err2 := used("fast", `{}`)
	seen := fmt.Sprintf("limit 0.2: %.2f of a processor, throttled %d times; none: %.2f, %d times", low, held, high, free)
	if err := errors.Join(err, err2); err != nil || held < 5 || free != 0 || low > 0.3 || high < 2*low {
		return seen, errors.Join(err, errors.New("the limit does not hold"))
	}
	return seen, nil
}

// killLeavesNothing ends a box whose processes have all gone their own ways.
// A process of the machine's in the box's cgroup shows that it is the cgroup
// that is killed: the end of the box's PID 1 does not reach it.
func killLeavesNothing(b *bed) (string, error) {
	r, err := b.box("many", `{"memory_mb":256}`, `$| = 1; use POSIX; for (1 .. 60) { fork or do { POSIX::setsid(); $SIG{$_} = "IGNORE" for qw(TERM HUP INT); $0 = "daemon-of-many"; sleep 600; exit } } sleep 1; print "up\n"; sleep 600`)
	if err != nil {
		return "", err
	}
	stranger := &running{Cmd: exec.Command("sleep", "600")}
	if err := stranger.startIn(b.part("box-many")); err != nil {
		return "", err
	}
	before := len(find("daemon-of-many"))
	begin := time.Now()
	out := b.botbox("kill", "many")
	took := time.Since(begin)
	r.end()
	after := find("daemon-of-many")
	stop := time.AfterFunc(5*time.Second, func() { stranger.Process.Signal(syscall.SIGTERM) })
	stranger.Wait()
	stop.Stop()
	ws := stranger.ProcessState.Sys().(syscall.WaitStatus)
	_, stat := os.Stat(b.part("box-many"))
	if before < 60 || out.code != 0 || len(after) > 0 || ws.Signal() != syscall.SIGKILL || stat == nil {
		return out.String(), fmt.Errorf("%d daemons before, %d after, stranger %v, cgroup %v", before, len(after), ws.Signal(), stat)
	}
	return fmt.Sprintf("%d daemons gone in %v", before, took), nil
}

// frozenBoxIsKilled is runc 2105 and benchexec 841: what its cgroup holds still
// is killed all the same.
func frozenBoxIsKilled(b *bed) (string, error) {
	r, err := b.box("frozen", `{"memory_mb":64}`, `$| = 1; $0 = "engine-of-frozen"; fork; print "up\n"; sleep 600`)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(b.part("box-frozen/cgroup.freeze"), []byte("1"), 0); err != nil {
		return "", err
	}
	still := eventually(5*time.Second, func() bool { return strings.Contains(read(b.part("box-frozen/cgroup.events")), "frozen 1") })
	begin := time.Now()
	out := b.botbox("kill", "frozen")
	took := time.Since(begin)
	r.end()
	if left := find("engine-of-frozen"); still != nil || out.code != 0 || took > 3*time.Second || len(left) > 0 {
		return out.String(), fmt.Errorf("frozen %v, killed after %v, left %v", still, took, left)
	}
	return fmt.Sprintf("gone in %v", took), nil
}

func noCgroupIsLeft(b *bed) (string, error) {
	var left []string
	err := eventually(5*time.Second, func() bool {
		left, _ = filepath.Glob(b.part("box-*"))
		return len(left) == 0
	})
	boxes, _ := b.get("/v1/boxes")
	if err != nil || strings.TrimSpace(boxes) != "[]" {
		return fmt.Sprint(left, boxes), errors.New("something of a box is left")
	}
	return "", nil
}
