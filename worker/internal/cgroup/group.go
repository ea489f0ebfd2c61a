package cgroup

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
)

// Group is the cgroup of one box. A nil Group bounds nothing.
type Group struct {
	dir  string
	kern kernel
}

// setting is one file of a cgroup.
type setting struct {
	controller, file, value string
	optional                bool // a kernel without it has not what it bounds
}

// cpuPeriod is the kernel's own, in microseconds.
const cpuPeriod = 100_000

// settings are in the order in which they are written.
func (l Limits) settings() []setting {
	var all []setting
	if l.MemoryMB > 0 {
		all = append(all,
			setting{"memory", "memory.max", strconv.Itoa(l.MemoryMB << 20), false},
			// Swap would only let a box that is too large die more slowly.
			setting{"memory", "memory.swap.max", "0", true},
			// A box without one of its processes is no box: all die, or none.
			setting{"memory", "memory.oom.group", "1", false})
	}
	if l.Pids > 0 { // and bubblewrap's PID 1
		all = append(all, setting{"pids", "pids.max", strconv.Itoa(l.Pids + 1), false})
	}
	if l.CPU > 0 {
		quota := strconv.Itoa(int(l.CPU * cpuPeriod))
		all = append(all, setting{"cpu", "cpu.max", quota + " " + strconv.Itoa(cpuPeriod), false})
	}
	return all
}

// Make makes the cgroup of a box, with every limit that the tree can hold.
func (t *Tree) Make(box string, l Limits) (*Group, error) {
	if t == nil {
		return nil, nil
	}
	g := &Group{t.file(prefix + box), t.kern}
	if err := t.makeAnew(prefix + box); err != nil {
		return nil, reason.New(reason.LimitsUnavailable, "make a cgroup for the box: %w", err)
	}
	for _, s := range l.settings() {
		if !t.Has(s.controller) {
			continue // Check has refused those that were asked for
		}
		err := g.kern.write(g.dir+"/"+s.file, s.value)
		if err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			g.kern.rmdir(g.dir)
			return nil, reason.New(reason.LimitsUnavailable, "set %s of the box: %w", s.file, err)
		}
	}
	return g, nil
}

const fromOutside = "the caller is outside the worker's part of the cgroups: ask from below the supervisor, or without the worker: " +
	"systemd-run --user --scope -p Delegate=yes botbox run --standalone …"

// Add moves processes of the box in. What they start from then on is in too.
func (g *Group) Add(pids ...int) error {
	if g == nil {
		return nil
	}
	for _, pid := range pids {
		if err := g.kern.write(g.dir+"/cgroup.procs", strconv.Itoa(pid)); err != nil {
			refused := reason.New(reason.LimitsUnavailable, "move the box into its cgroup: %w", err)
			if errors.Is(err, fs.ErrPermission) { // the kernel asks for the nearest cgroup above both
				refused = refused.WithHint("%s", fromOutside)
			}
			return refused
		}
	}
	return nil
}

// OOM tells whether the kernel killed the box because its memory ran out.
func (g *Group) OOM() bool {
	if g == nil {
		return false
	}
	text, _ := g.kern.read(g.dir + "/memory.events")
	for line := range strings.Lines(text) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(n) != "0"
		}
	}
	return false
}

// Kill kills every process in it, at once and for good (Linux 5.14). A kernel
// that cannot do so kills the box through its PID 1 all the same.
func (g *Group) Kill() {
	if g != nil {
		g.kern.write(g.dir+"/cgroup.kill", "1")
	}
}

// removeWithin bounds the wait for the last process of a box that was killed.
const removeWithin = 2 * time.Second

// Close removes the cgroup. The kernel does that when its last process is
// gone, which is a moment after the box was told to end.
func (g *Group) Close() {
	if g == nil {
		return
	}
	for end := time.Now().Add(removeWithin); ; time.Sleep(2 * time.Millisecond) {
		if err := g.kern.rmdir(g.dir); err == nil || errors.Is(err, fs.ErrNotExist) || time.Now().After(end) {
			return // what is left is swept when the next worker starts
		}
	}
}
