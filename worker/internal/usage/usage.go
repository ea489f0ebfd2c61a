package usage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Meter looks at one box.
type Meter struct {
	Proc   string // where the processes are shown; empty = /proc
	Init   int    // PID 1 of the box
	Engine int
	// Network: the box's network namespace is its own, so what is sent in it
	// is the box's, to and from its gates and its broker.
	Network  bool
	Terminal bool // the engine's stdin is a terminal
}

// Use is what a box had used at a moment.
type Use struct {
	spent     // by the living, and by the dead that they waited for
	processes map[int]bool
	sent      uint64 // TCP segments that carried data, in either direction
	touched   bool   // bytes have come or gone on the terminal of late
}

// share is the part of one processor that an engine may use while it waits: its
// timers and its collector go on. Claude Code at its prompt uses 0.6 %.
const share = 50

// Busy tells whether the box has done anything since an earlier look.
func (u Use) Busy(since Use, elapsed time.Duration) bool {
	for pid := range u.processes {
		if !since.processes[pid] {
			return true
		}
	}
	return u.cpu-since.cpu > elapsed/share || u.dead > since.dead || u.sent != since.sent || u.touched
}

// Read looks at the box.
func (m Meter) Read() (Use, error) {
	u := Use{processes: map[int]bool{}}
	if err := m.addTree(&u, m.Init); err != nil {
		return u, err
	}
	if !u.processes[m.Engine] {
		return u, errors.New("the engine is not among the box's processes")
	}
	if m.Network {
		var err error
		if u.sent, err = m.segments(); err != nil {
			return u, err
		}
	}
	if m.Terminal {
		var st unix.Stat_t
		err := unix.Stat(m.path(m.Engine, "fd/0"), &st)
		if err != nil && !gone(err) { // an engine may close it
			return u, fmt.Errorf("look at the box's terminal: %w", err)
		}
		u.touched = err == nil && time.Since(latest(st.Atim, st.Mtim)) < coarse
	}
	return u, nil
}

// coarse is how exactly the kernel notes when a terminal was used, so that
// nobody can time another's typing.
const coarse = 8 * time.Second

func latest(a, b unix.Timespec) time.Time {
	return time.Unix(0, max(a.Nano(), b.Nano()))
}

func (m Meter) path(pid int, name string) string {
	proc := m.Proc
	if proc == "" {
		proc = "/proc"
	}
	return filepath.Join(proc, strconv.Itoa(pid), name)
}

// addTree adds a process and all below it. Whatever outlives its parent in a
// box becomes the child of PID 1, so the tree is whole; what ends while it is
// read was there before.
func (m Meter) addTree(u *Use, pid int) error {
	text, err := os.ReadFile(m.path(pid, "stat"))
	if err != nil {
		return err
	}
	s, err := parseStat(string(text))
	if err != nil {
		return err
	}
	u.cpu += s.cpu
	u.dead += s.dead
	u.processes[pid] = true
	children, err := m.children(pid)
	if err != nil {
		return err
	}
	for _, child := range children {
		if err := m.addTree(u, child); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)
}

// children are those of all threads: each has its own (Linux 3.5, and a kernel
// that was built with CONFIG_PROC_CHILDREN).
func (m Meter) children(pid int) ([]int, error) {
	threads, err := os.ReadDir(m.path(pid, "task"))
	if err != nil {
		return nil, err
	}
	var all []int
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join(m.path(pid, "task"), thread.Name(), "children"))
		if err != nil && (!gone(err) || strconv.Itoa(pid) == thread.Name()) {
			return nil, err
		}
		for word := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				return nil, fmt.Errorf("children of a process: %w", err)
			}
			all = append(all, child)
		}
	}
	return all, nil
}

// tick is the unit of /proc's times, whatever the kernel's own.
const tick = 10 * time.Millisecond

// spent is what one process has used.
type spent struct {
	cpu  time.Duration
	dead int64 // page faults of children that it waited for: each has had some
}

// parseStat reads cminflt, utime, stime, cutime and cstime of a stat line. The
// name may hold anything, so fields are counted from its last bracket.
func parseStat(stat string) (s spent, err error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 15 || !strings.Contains(stat, ")") {
		return s, errors.New("a stat line is too short")
	}
	number := func(at int) int64 {
		n, failed := strconv.ParseInt(fields[at], 10, 64)
		err = errors.Join(err, failed)
		return n
	}
	s.dead = number(8)
	s.cpu = time.Duration(number(11)+number(12)+number(13)+number(14)) * tick
	return s, err
}

// segments counts TCP segments with data in the engine's network namespace,
// in which both ends of a donated listener's connections are counted. Probes
// that only keep a connection alive are not among them.
func (m Meter) segments() (uint64, error) {
	text, err := os.ReadFile(m.path(m.Engine, "net/netstat"))
	if err != nil {
		return 0, err
	}
	const group, name = "TcpExt:", "TCPOrigDataSent"
	var names, values []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] != group:
		case names == nil:
			names = fields
		default:
			values = fields
		}
	}
	i := slices.Index(names, name)
	if i < 0 || i >= len(values) {
		return 0, errors.New("this kernel does not count " + name)
	}
	return strconv.ParseUint(values[i], 10, 64)
}
