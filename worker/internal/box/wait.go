package box

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/posture"
)

// Process is a process that cannot be confused with another: signals go by
// pidfd, never by a number that may have been given away.
type Process struct {
	Pid  int
	file *os.File
}

// openProcess holds on to a running process.
func openProcess(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &Process{Pid: pid, file: os.NewFile(uintptr(fd), "pidfd")}, nil
}

// Signal sends one signal; a process that is gone is no error.
func (p *Process) Signal(sig unix.Signal) error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return err
	}
	if sent == unix.ESRCH {
		return nil
	}
	return sent
}

// Wait returns when the process has ended. It costs no thread: a pidfd is
// readable when its process is gone, and Go's poller waits for that.
func (p *Process) Wait() error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(over)
}

func over(pidfd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return n == 1 || (err != nil && err != unix.EINTR)
}

func (p *Process) ended() (yes bool) {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return true
	}
	if err := conn.Control(func(fd uintptr) { yes = over(fd) }); err != nil {
		return true
	}
	return yes
}

// Close lets go of the process; it may go on.
func (p *Process) Close() {
	if p != nil {
		p.file.Close()
	}
}

// HeldBy says which process becomes bubblewrap, or stays its parent. When that
// one ends early, no time is lost on waiting for a box that nobody builds.
func (k *Kit) HeldBy(pid int) {
	if p, err := openProcess(pid); err == nil {
		k.holder = p
	}
}

// readStatus reads bubblewrap's two lines of JSON: the pid of the box's first
// process when it has started, and the exit status when it has ended. No
// second line means that bubblewrap was killed or never ran the command.
func readStatus(from io.Reader, child, exit chan<- int) {
	defer close(exit)
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var line struct {
			Child *int `json:"child-pid"`
			Exit  *int `json:"exit-code"`
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		if line.Child != nil {
			select {
			case child <- *line.Child:
			default:
			}
		}
		if line.Exit != nil {
			exit <- *line.Exit
			return
		}
	}
}

// parentOf asks the kernel, which counts as we do.
func parentOf(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return posture.ParentOf(string(text))
}
