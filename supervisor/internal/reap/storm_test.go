package reap

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// orphans leaves 2,000 processes without a parent, which end in their own ways
// within a second, and ends with 42.
const orphans = `for my $i (1 .. 2000) {
	my $p = fork; defined $p or die "fork: $!";
	if (!$p) { fork and exit; select undef, undef, undef, rand; kill KILL => $$ if $i % 7 == 0; exit $i % 256 }
	waitpid $p, 0;
} exit 42`

// go-reaper 2 and 11, coder 22866, u-root 746: each of our own children's
// statuses is exact while 2,000 orphans die beside them, as PID 1 and below it.
func TestExactStatusesInAStormOfOrphans(t *testing.T) {
	if os.Getenv("REAP_STORM") != "" {
		inTheStorm(t)
		return
	}
	if os.Geteuid() != 0 {
		if os.Getenv("BOTBOX_MUST_RUN") == "1" {
			t.Fatal("this test must run: it needs root, for a PID namespace")
		}
		t.Skip("needs root, for a PID namespace")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{`exec "$@"`, `"$@"; exit $?`} {
		cmd := exec.Command("unshare", "-pfm", "--mount-proc", "--kill-child", "sh", "-c", place, "sh", self, "-test.run=^TestExactStatusesInAStormOfOrphans$", "-test.v")
		cmd.Env = append(os.Environ(), "REAP_STORM=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%s: %v\n%s", place, err, out)
		}
		for line := range strings.Lines(string(out)) {
			if _, said, ok := strings.Cut(line, "storm: "); ok {
				t.Logf("process %s", strings.TrimSpace(said))
			}
		}
	}
}

func inTheStorm(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	var table Table
	want := map[int]int{}
	start := func(code int, argv ...string) {
		pid, err := table.Start(argv[0], argv, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		want[pid] = code
	}
	start(42, "/usr/bin/perl", "-e", orphans)
	own, most, foreign := 1, 0, 0
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if own < 600 {
			if own++; own%3 == 0 {
				start(137, "/bin/sh", "-c", "kill -9 $$")
			} else {
				start(own%256, "/bin/sh", "-c", fmt.Sprintf("exit %d", own%256))
			}
		}
		all := len(children())
		most, foreign = max(most, all), max(foreign, all-len(want))
		for _, e := range table.Collect() {
			if got := ExitStatus(e.Status); got != want[e.PID] {
				t.Errorf("status %d, want %d", got, want[e.PID])
			}
			delete(want, e.PID)
		}
		if len(want) == 0 && len(children()) == 0 {
			break
		}
	}
	fmt.Printf("storm: %d: %d children of our own, at most %d orphans at once\n", os.Getpid(), own, foreign)
	if n := len(children()); len(want) > 0 || n > 0 || own < 300 || foreign < 100 {
		t.Errorf("%d statuses never came, %d children are left", len(want), n)
	}
}
