package turn

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/usage"
)

// watching is an idle limit over a process that sleeps, last looked at as long
// ago as it was quiet.
func watching(t *testing.T, quiet, looked time.Duration) *idleness {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	i := &idleness{meter: usage.Meter{Init: cmd.Process.Pid, Engine: cmd.Process.Pid}, within: 40 * time.Second}
	var err error
	if i.last, err = i.meter.Read(); err != nil {
		t.Fatal(err)
	}
	i.quiet, i.at = time.Now().Add(-quiet), time.Now().Add(-looked)
	return i
}

func TestIdleIsWhatWasSeen(t *testing.T) {
	for _, c := range []struct {
		quiet, looked time.Duration
		over          bool
	}{
		{time.Minute, 5 * time.Second, true},
		{30 * time.Second, 5 * time.Second, false},
		{time.Hour, time.Hour, false}, // we were stopped, and so was the box, perhaps
	} {
		if got := watching(t, c.quiet, c.looked).over(); got != c.over {
			t.Errorf("%+v: %v", c, got)
		}
	}
	gone := watching(t, time.Minute, 5*time.Second)
	gone.meter.Init = os.Getpid() + 1<<22 // beyond what the kernel gives out
	if gone.over() {
		t.Error("a box that cannot be looked at is idle")
	}
}
