package selfcheck

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/worker/internal/report"
)

// donations are the box's own listeners, by which its network namespace lives
// on for as long as anybody holds one.
type donations struct {
	mu     sync.Mutex
	inodes []uint64
}

// donated notes a listener, and that it is among our open files: the control
// of the look afterwards.
func (v *visit) donated(port int, l net.Listener) {
	inode, err := inodeOf(l)
	if err != nil || !slices.Contains(openInodes(), inode) {
		return // too few are then noted, which is found out
	}
	v.freed.mu.Lock()
	defer v.freed.mu.Unlock()
	v.freed.inodes = append(v.freed.inodes, inode)
	if v.holds && port == v.boxPorts.Broker {
		v.hold(l)
	}
}

// hold keeps a copy of a listener open until the check is over.
func (v *visit) hold(l net.Listener) {
	if tcp, ok := l.(*net.TCPListener); ok {
		if file, err := tcp.File(); err == nil {
			v.later(file.Close)
		}
	}
}

func inodeOf(l net.Listener) (inode uint64, err error) {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return 0, net.UnknownNetworkError(l.Addr().Network())
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	control := raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) })
	if control != nil {
		return 0, control
	}
	return st.Ino, err
}

// openInodes are those of all files that this process has open.
func openInodes() (all []uint64) {
	names, _ := filepath.Glob("/proc/self/fd/*") // the pattern is ours
	for _, name := range names {
		var st unix.Stat_t
		if target, err := os.Readlink(name); err == nil && strings.HasPrefix(target, "socket:") && unix.Stat(name, &st) == nil {
			all = append(all, st.Ino)
		}
	}
	return all
}

// nothingHeld looks for the box's listeners among our open files when the box
// has ended. One that is left would keep its network for ever.
func (e *evidence) nothingHeld() report.Result {
	e.freed.mu.Lock()
	noted := slices.Clone(e.freed.inodes)
	e.freed.mu.Unlock()
	if len(noted) < 3 {
		return unclear("only %d of the box's listeners were seen open while it ran", len(noted))
	}
	for end := time.Now().Add(time.Second); ; time.Sleep(10 * time.Millisecond) {
		open := openInodes()
		held := slices.DeleteFunc(slices.Clone(noted), func(inode uint64) bool { return !slices.Contains(open, inode) })
		switch {
		case len(held) == 0:
			return passed("none of %d listeners is held", len(noted))
		case time.Now().After(end):
			return failed("%d of the box's listeners are held a second after its end", len(held))
		}
	}
}
