package reap

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Table knows our own children that have not been waited for. A process id
// stays taken until the wait, so as long as it stands here it is the child's.
type Table struct{ alive map[int]bool }

// Ended is one of our own children that is gone.
type Ended struct {
	PID    int
	Status syscall.WaitStatus
}

// Start forks and executes. It gives the process id.
func (t *Table) Start(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return 0, err
	}
	if t.alive == nil {
		t.alive = map[int]bool{}
	}
	t.alive[pid] = true
	return pid, nil
}

// Collect waits for everything that has ended, our own and orphans, and gives
// our own. Signals coalesce, so one SIGCHLD may stand for thousands.
func (t *Table) Collect() []Ended {
	var ended []Ended
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return ended
		}
		if t.alive[pid] {
			delete(t.alive, pid)
			ended = append(ended, Ended{pid, ws})
		}
	}
}

// Signal sends sig to one of our own children.
func (t *Table) Signal(pid int, sig syscall.Signal) error {
	if pid <= 1 || !t.alive[pid] {
		return fmt.Errorf("process %d is no child of ours", pid)
	}
	return syscall.Kill(pid, sig)
}

// Sweep kills and reaps what is left below us, again and again because a
// killed parent leaves its children to us, until nothing is left or the time
// is over. As PID 1 the kernel would do it; as an ordinary child nobody would.
func Sweep(within time.Duration) {
	for end := time.Now().Add(within); time.Now().Before(end); {
		for _, pid := range children() {
			unix.Kill(pid, unix.SIGKILL)
		}
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == syscall.ECHILD {
			return
		}
		if pid == 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

// children lists our children of this moment. The kernel keeps one list a
// thread; ours fork from one, but orphans come to any.
func children() []int {
	var pids []int
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, t := range tasks {
		text, _ := os.ReadFile("/proc/self/task/" + t.Name() + "/children")
		for _, f := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// ExitStatus is the shell's way of saying how a process ended: n, or 128+n.
func ExitStatus(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
