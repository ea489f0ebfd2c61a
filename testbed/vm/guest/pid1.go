package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The course in which the supervisor is the machine's first process.
var pid1 = []row{
	{"boot-steps", bootSteps},
	{"start", startFigures},
	{"first-process", firstProcess},
	{"memory-at-rest", memoryAtRest},
	{"hidden-processes", hiddenProcesses},
	{"fly-is-locked", flyIsLocked},
	{"whose-cgroups", whoseCgroups},
	{"box-starts", boxStarts},
	{"command-boxes-with-limits", commandBoxes},
	{"limits-refused-from-outside", refusedOutside},
	{"fork-bomb", forkBomb},
	{"memory-hog", memoryHog},
	{"memory-hog-standing-alone", memoryHogAlone},
	{"cpu-limit", cpuLimit},
	{"kill-leaves-nothing", killLeavesNothing},
	{"frozen-box-is-killed", frozenBoxIsKilled},
	{"full-self-check", fullSelfCheck},
	{"landlock", landlock},
	{"vsock", vsock},
	{"report-to-the-host", reportToHost},
	{"report-to-nobody-else", reportToNobodyElse},
	{"no-port-for-the-report", noPortForTheReport},
	{"apparmor", apparmor},
	{"self-check", selfCheck},
	{"worker-comes-back", workerComesBack},
	{"report-of-the-next-worker", reportToHost},
}

// drive is the course's other process: root, and the supervisor's child that
// it knows nothing of.
func drive() {
	b := &bed{run: "/run/botbox", group: "/sys/fs/cgroup"}
	b.all(pid1)
	if _, err := os.Stat(engineDir); err == nil { // that it is there is the test's to see
		b.all([]row{{"engine-turn", engineTurn}})
	}
	b.all([]row{{"no-cgroup-is-left", noCgroupIsLeft}})
	// What the last box says when it is asked to end goes to the console by
	// itself: when the supervisor stops, we are killed with everything else.
	last := b.boxed("last", `{"memory_mb":64}`, `$| = 1; $SIG{TERM} = sub { print STDERR "the last box was asked to end\n"; exit 0 }; print "up\n"; sleep 60 while 1`)
	last.Stderr = os.Stdout
	if err := b.await(last); err != nil {
		fmt.Println("there is no last box:", err)
	}
	// And one that does not care, which is what the drain has its budget for.
	if _, err := b.box("deaf", `{}`, `$| = 1; $SIG{TERM} = "IGNORE"; print "up\n"; sleep 60 while 1`); err != nil {
		fmt.Println("there is no deaf box:", err)
	}
	fmt.Println("DONE", b.made)
	fmt.Println("TERM AT", uptime().Seconds())
	unix.Kill(1, unix.SIGTERM)
	last.Wait()
	select {}
}

// command is what the supervisor runs unboxed beside the worker: it asks for
// one box, and stays.
func command() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	if err := os.Chdir(work); err == nil {
		out := alone(programs+"/botbox", "run", "--memory", "64M", "--", "cat", "/proc/self/oom_score_adj")
		os.WriteFile(work+"/command.new", []byte(out.String()), 0o644)
		os.Rename(work+"/command.new", work+"/command")
	}
	<-stop
}

func bootSteps(b *bed) (string, error) {
	steps, err := b.steps()
	if err != nil {
		return "", err
	}
	var seen []string
	for _, name := range []string{"account", "folders", "code-trust", "hidepid", "fly", "cgroup", "bot-users", "subreaper", "drop", "reexec"} {
		s, want := steps[name], "done"
		if name == "bot-users" { // off unless it is asked for
			want = "skipped"
		}
		if seen = append(seen, name+": "+s.State+" ("+s.Evidence+")"); s.State != want || s.Evidence == "" {
			err = errors.Join(err, fmt.Errorf("%s is %q", name, s.State))
		}
	}
	if len(steps) != len(seen) {
		err = errors.Join(err, fmt.Errorf("there are %d steps", len(steps)))
	}
	return strings.Join(seen, ", "), err
}

// startFigures says how long it took from the supervisor's start to the worker's
// first answer, as seen every 20 ms. It is the second row for that reason.
func startFigures(b *bed) (string, error) {
	from, err := time.ParseDuration(read(startedFile))
	if err != nil || b.answered <= from {
		return "", fmt.Errorf("from %v to %v: %v", from, b.answered, err)
	}
	return fmt.Sprintf("the worker answers %v after the supervisor's start, %v after the kernel's", b.answered-from, b.answered), nil
}

// uptime is the time since the kernel's start.
func uptime() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano()).Round(time.Millisecond)
}

func firstProcess(b *bed) (string, error) {
	status, group := read("/proc/1/status"), read("/proc/1/cgroup")
	for _, line := range []string{"Name:\tbotbox-supervis", "CapEff:\t00000000000000e0", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(status, line+"\n") {
			return status, fmt.Errorf("no %q", line)
		}
	}
	worker := find("serve --control")
	if len(worker) != 1 || group != "0::/botbox-supervisor" || read("/proc", fmt.Sprint(worker[0]), "cgroup") != "0::/botbox/botbox-worker" {
		return fmt.Sprint(group, worker), errors.New("supervisor and worker are not in their cgroups")
	}
	return group, nil
}

// memoryAtRest is what the two take together, each shared page counted once.
func memoryAtRest(b *bed) (string, error) {
	worker := find("serve --control")
	if len(worker) != 1 {
		return fmt.Sprint(worker), errors.New("there is no one worker")
	}
	var kB [2]int
	for i, pid := range []int{1, worker[0]} {
		for line := range strings.Lines(read("/proc", fmt.Sprint(pid), "smaps_rollup")) {
			fmt.Sscanf(line, "Pss: %d kB", &kB[i])
		}
	}
	seen := fmt.Sprintf("supervisor %d kB, worker %d kB", kB[0], kB[1])
	if kB[0] == 0 || kB[1] == 0 || kB[0]+kB[1] > 25<<10 {
		return seen, errors.New("that is not at most 25 MB")
	}
	return seen, nil
}

func hiddenProcesses(b *bed) (string, error) {
	before := len(find(""))
	out := b.maus("sh", "-c", "ls -d /proc/[0-9]* | wc -l; ls -d /proc/1")
	var after int
	fmt.Sscan(out.stdout, &after)
	if after == 0 || after >= before || after > 12 || strings.Contains(out.stdout, "/proc/1") {
		return out.String(), fmt.Errorf("maus sees %d of %d processes", after, before)
	}
	return fmt.Sprintf("maus sees %d of %d processes", after, before), nil
}

func flyIsLocked(b *bed) (string, error) {
	out := b.maus("cat", "/.fly/api")
	if out.code == 0 || !strings.Contains(out.stderr, "Permission denied") {
		return out.String(), errors.New("maus reads /.fly/api")
	}
	return "", nil
}

// whoseCgroups tries as maus, from the worker's own cgroup, what the worker
// must be able to do and what it must not.
func whoseCgroups(b *bed) (string, error) {
	out := b.maus("sh", "-c", `
		may() { "$@" 2>/dev/null && echo "$*: yes" || echo "$*: no"; }
		put() { echo "$1" >"$2"; }
		cd /sys/fs/cgroup/botbox
		may mkdir box-mine
		may put $$ box-mine/cgroup.procs
		may put 10 box-mine/pids.max
		may put $$ botbox-worker/cgroup.procs
		may mkdir ../mine
		may put 1 box-mine/cgroup.procs
		may put 1 cgroup.procs
		may put $$ ../cgroup.procs
		may put 100 memory.max
		may put 1 cgroup.freeze
		may put 1 cgroup.kill
		may put 1 ../botbox-supervisor/cgroup.freeze
		may rmdir botbox-worker
		may chmod 777 .`)
	want := `mkdir box-mine: yes
		put N box-mine/cgroup.procs: yes
		put 10 box-mine/pids.max: yes
		put N botbox-worker/cgroup.procs: no
		mkdir ../mine: no
		put 1 box-mine/cgroup.procs: no
		put 1 cgroup.procs: no
		put N ../cgroup.procs: no
		put 100 memory.max: no
		put 1 cgroup.freeze: no
		put 1 cgroup.kill: no
		put 1 ../botbox-supervisor/cgroup.freeze: no
		rmdir botbox-worker: no
		chmod 777 .: no`
	var got []string
	for line := range strings.Lines(out.stdout) {
		f := strings.Fields(line)
		if len(f) > 2 && f[0] == "put" && len(f[1]) > 1 && f[1] != "10" && f[1] != "100" && f[1] != "max" {
			f[1] = "N"
		}
		got = append(got, strings.Join(f, " "))
	}
	for _, line := range strings.Split(want, "\n") {
		if !strings.Contains(strings.Join(got, "\n")+"\n", strings.TrimSpace(line)+"\n") {
			return out.String(), fmt.Errorf("not %q", strings.TrimSpace(line))
		}
	}
	os.Remove(b.part("box-mine"))
	if read("/proc/1/cgroup") != "0::/botbox-supervisor" {
		return read("/proc/1/cgroup"), errors.New("the supervisor was moved")
	}
	return fmt.Sprintf("%d questions", len(strings.Split(want, "\n"))), nil
}

func boxStarts(b *bed) (string, error) {
	begin := time.Now()
	out := b.botbox("run", "--", "sh", "-c", "id -un; ls /sys/fs 2>&1; tr '\\0' ' ' </proc/1/cmdline")
	took := time.Since(begin)
	if out.code != 0 || !strings.HasPrefix(out.stdout, "maus\n") || !strings.Contains(out.stdout, "bwrap") || !strings.Contains(out.stdout, "No such file") {
		return out.String(), errors.New("no box")
	}
	return took.String(), nil
}

// commandBoxes shows that what the supervisor runs beside the worker can ask
// for boxes with limits: it is in the worker's part.
func commandBoxes(b *bed) (string, error) {
	err := eventually(30*time.Second, func() bool { return read(work, "command") != "" })
	if got := read(work, "command"); err != nil || !strings.HasPrefix(got, `code 0 "500\n"`) {
		return got, errors.Join(err, errors.New("the command got no box"))
	}
	return "", nil
}

// refusedOutside: a caller whom the kernel does not let the worker move gets
// no box without the limit that it asked for.
func refusedOutside(b *bed) (string, error) {
	ask := func(words ...string) output {
		return b.in(b.group, append([]string{programs + "/botbox", "run"}, words...)...)
	}
	if out := ask("--", "echo", "ran"); out.code != 0 || out.stdout != "ran\n" {
		return out.String(), errors.New("control: no box without a limit")
	}
	out := ask("--memory", "64M", "--", "echo", "ran")
	if out.code != 125 || out.stdout != "" || !strings.Contains(out.stderr, "reason: limits-unavailable") || !strings.Contains(out.stderr, "--standalone") {
		return out.String(), errors.New("not refused by name with what helps")
	}
	return strings.ReplaceAll(out.stderr, "\n", "; "), nil
}
