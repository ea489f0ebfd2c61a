package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/openmausbot/botbox/shared/posture"
)

// Both processes of ours let the kernel wake them late, on every thread, the
// runtime's own among them; a command of somebody else's does not have that of
// them, in a box and without one.
func TestTimerSlack(t *testing.T) {
	ours, plain := fmt.Sprintln(posture.OurTimerSlack), fmt.Sprintln(posture.PlainTimerSlack)
	bothWays(t, func(t *testing.T, child bool) {
		r := realWorld(t, child, nil, "--", "sh", "-c", "cat /proc/self/timerslack_ns; sleep 60")
		r.await(t, "the command", func() bool { return r.stdout.String() != "" })
		if got := r.stdout.String(); got != plain {
			t.Errorf("in the box: %q, want %q", got, plain)
		}
		f := &fleet{running: r}
		for name, pid := range map[string]int{"supervisor": f.supervisor(t), "worker": f.workerPid(t)} {
			tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			if err != nil || len(tasks) < 2 {
				t.Fatalf("%s: %v, %d threads", name, err, len(tasks))
			}
			for _, task := range tasks {
				// It is shown of a thread's own folder only.
				if got := read("/proc/" + task.Name() + "/timerslack_ns"); got != ours {
					t.Errorf("%s, thread %s: %q, want %q", name, task.Name(), got, ours)
				}
			}
		}
	})
	r := start(t, world{args: []string{"--plain", "--", "cat", "/proc/self/timerslack_ns"}})
	if status := r.status(t); status != 0 || r.stdout.String() != plain {
		t.Errorf("without a box: exit %d, %q, want %q", status, r.stdout.String(), plain)
	}
}
