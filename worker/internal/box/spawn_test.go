package box

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// endThreads ends operating-system threads: a goroutine that is locked to one
// and returns takes it along.
func endThreads(n int, first func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // and never unlocked
				first()
				time.Sleep(time.Millisecond) // so that all of them have a thread of their own
			}()
			<-done
		})
	}
	all.Wait()
}

// A parent-death signal fires when the thread that forked ends (golang/go
// 27505): what the Spawner starts lives on, however many threads end.
func TestBoxesOutliveThreads(t *testing.T) {
	s := NewSpawner()
	program, err := os.Open("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var children []*Child
	for range 10 {
		endThreads(10, func() {})
		c, err := s.Beside(program, []string{"sleep", "300"}, []string{}, null, null)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Kill(); c.Wait() })
		children = append(children, c)
	}
	endThreads(200, func() {})
	for i, c := range children {
		if !alive(t, c.Pid()) {
			t.Errorf("child %d died with a thread", i)
		}
	}
	// Positive control: a child of a thread that ends is killed.
	cmd := exec.Command("/bin/sleep", "300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	endThreads(1, func() { started <- cmd.Start() })
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(10*time.Second, func() { cmd.Process.Signal(syscall.SIGTERM) })
	defer late.Stop()
	cmd.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGKILL {
		t.Errorf("positive control: a child of a thread that has ended: %v", cmd.ProcessState)
	}
}

// alive tells whether a child of ours runs: a dead one is a zombie until it is
// waited for.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n == 0
}
