package reap

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func TestExactStatuses(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var table Table
	want := map[int]int{}
	for i := range 100 {
		argv := []string{"sh", "-c", "exit 7"}
		code := 7
		if i%3 == 0 {
			argv[2], code = "kill -9 $$", 137
		}
		pid, err := table.Start("/bin/sh", argv, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		want[pid] = code
	}
	for end := time.Now().Add(20 * time.Second); len(want) > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, e := range table.Collect() {
			if got := ExitStatus(e.Status); got != want[e.PID] {
				t.Errorf("status %d, want %d", got, want[e.PID])
			}
			if table.Signal(e.PID, syscall.SIGKILL) == nil {
				t.Error("a process that was waited for can be signalled")
			}
			delete(want, e.PID)
		}
	}
	if len(want) > 0 {
		t.Errorf("%d statuses never came", len(want))
	}
}

func TestSignalHitsOurOwnOnly(t *testing.T) {
	var table Table
	pid, err := table.Start("/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []int{-1, 0, 1, os.Getpid(), os.Getppid(), -pid} {
		if table.Signal(other, 0) == nil {
			t.Errorf("%d can be signalled", other)
		}
	}
	if err := table.Signal(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	var ws syscall.WaitStatus
	syscall.Wait4(pid, &ws, 0, nil)
}
