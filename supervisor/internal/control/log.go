package control

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// Log writes lines to stderr, with the priority in front when stderr is the
// journal's own stream. No value of the environment goes into a line.
type Log struct{ journal bool }

// NewLog looks whether JOURNAL_STREAM of env names our stderr.
func NewLog(env []string) *Log {
	var st unix.Stat_t
	err := unix.Fstat(2, &st)
	return &Log{err == nil && get(env, "JOURNAL_STREAM") == fmt.Sprintf("%d:%d", st.Dev, st.Ino)}
}

// Warn tells of something that is not as it should be.
func (l *Log) Warn(format string, args ...any) {
	l.lines(4, "botbox-supervisor: "+fmt.Sprintf(format, args...)+"\n")
}

// Fail tells why the supervisor ends: what, a hint, the code.
func (l *Log) Fail(err error) {
	var text strings.Builder
	reason.Print(&text, "botbox-supervisor", err)
	l.lines(3, text.String())
}

// lines never waits: a reader of stderr that hangs must not hang PID 1. While
// a pipe is writable it takes PIPE_BUF bytes at once.
func (l *Log) lines(priority int, text string) {
	if l.journal {
		text = fmt.Sprintf("<%d>", priority) + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", fmt.Sprintf("\n<%d>", priority)) + "\n"
	}
	fds := []unix.PollFd{{Fd: 2, Events: unix.POLLOUT}}
	if n, err := unix.Poll(fds, 0); err == nil && n == 1 && fds[0].Revents&unix.POLLOUT != 0 {
		io.WriteString(os.Stderr, text[:min(len(text), 4096)])
	}
}

// serviceManager gives where to send sd_notify states, nil without one. Only
// the supervisor speaks to it: with NotifyAccess=main a child's word makes the
// unit fail. The address stays in our memory; no child sees it.
func serviceManager(env []string) chan string {
	socket := get(env, "NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	os.Setenv("NOTIFY_SOCKET", socket) // go-systemd looks nowhere else
	states := make(chan string, 8)
	go func() {
		for s := range states {
			daemon.SdNotify(false, s)
		}
	}()
	return states
}

// pingPeriod is half the service manager's watchdog period where there is one,
// for each answer of the worker feeds that watchdog.
func pingPeriod(env []string) time.Duration {
	os.Setenv("WATCHDOG_USEC", get(env, "WATCHDOG_USEC"))
	os.Setenv("WATCHDOG_PID", get(env, "WATCHDOG_PID"))
	period, err := daemon.SdWatchdogEnabled(true)
	if err != nil || period == 0 {
		return pingEvery
	}
	return min(pingEvery, period/2)
}

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}
