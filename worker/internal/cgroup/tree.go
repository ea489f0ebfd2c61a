package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
)

const (
	leaf   = "botbox-worker" // where we are ourselves: only a cgroup without processes has children with limits
	prefix = "box-"          // of every box's; no file of the kernel's begins so
)

// controllers are those that we use, as the kernel names them.
var controllers = []string{"memory", "pids", "cpu"}

// Tree is a cgroup that we rule.
type Tree struct {
	dir  string
	on   []string // the controllers that its children have
	kern kernel

	mu   sync.Mutex
	left map[string]bool // cgroups of boxes that outlived a worker before us
}

// Take takes this process's own cgroup over, if it was delegated to us and
// nobody else is in it. beside is a process that moves along, the supervisor,
// or 0. The error says why there is no tree.
func Take(beside int) (*Tree, error) {
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	mounts, err2 := os.ReadFile("/proc/self/mountinfo")
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	dir, err := own(string(cgroups), string(mounts))
	if err != nil {
		return nil, err
	}
	t, err := take(mounted{}, dir, os.Getpid(), beside)
	if err != nil {
		return nil, err
	}
	for box := range t.left {
		go t.outlive(box)
	}
	return t, nil
}

func take(kern kernel, dir string, ours ...int) (*Tree, error) {
	if filepath.Base(dir) == leaf { // of a worker before us
		dir = filepath.Dir(dir)
	}
	t := &Tree{dir: dir, kern: kern}
	has, err := kern.read(t.file("cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	want := slices.DeleteFunc(slices.Clone(controllers), func(c string) bool { return !slices.Contains(strings.Fields(has), c) })
	if len(want) == 0 {
		return nil, fmt.Errorf("the cgroup %s has none of the controllers %s", dir, strings.Join(controllers, ", "))
	}
	if err := t.moveOut(ours); err != nil {
		return nil, err
	}
	for _, c := range want { // one by one: a write is taken whole or not at all
		if err := kern.write(t.file("cgroup.subtree_control"), "+"+c); err != nil {
			return nil, fmt.Errorf("the cgroup %s was not delegated whole: %w", dir, err)
		}
	}
	t.on = want
	t.sweep()
	return t, nil
}

func (t *Tree) file(name ...string) string { return filepath.Join(append([]string{t.dir}, name...)...) }

// moveOut empties the tree's own cgroup of ourselves.
func (t *Tree) moveOut(ours []int) error {
	text, err := t.kern.read(t.file("cgroup.procs"))
	if err != nil {
		return err
	}
	for _, pid := range strings.Fields(text) {
		if n, err := strconv.Atoi(pid); err != nil || !slices.Contains(ours, n) {
			return fmt.Errorf("the cgroup %s is shared with process %s", t.dir, pid)
		}
	}
	if err := t.kern.mkdir(t.file(leaf)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the cgroup %s is not delegated to this user: %w", t.dir, err)
	}
	for _, pid := range strings.Fields(text) {
		if err := t.kern.write(t.file(leaf, "cgroup.procs"), pid); err != nil {
			return fmt.Errorf("the cgroup %s is not delegated to this user: %w", t.dir, err)
		}
	}
	return nil
}

// sweep removes the cgroups of boxes that a worker before us did not live to
// remove. One that still has processes stays: the kernel refuses.
func (t *Tree) sweep() {
	t.left = map[string]bool{}
	entries, _ := os.ReadDir(t.dir) // none, if it cannot be read: they harm nobody
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && t.kern.rmdir(t.file(e.Name())) != nil {
			t.left[e.Name()] = true
		}
	}
}

// lookAgain is how often a box that nobody attends is looked after.
const lookAgain = time.Second

// outlive removes the cgroup of a box that outlived its worker, when that has
// ended too.
func (t *Tree) outlive(box string) {
	for !t.removed(box) {
		time.Sleep(lookAgain)
	}
}

// removed removes a cgroup that is still the one that was left.
func (t *Tree) removed(box string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.left[box] {
		return true
	}
	if err := t.kern.rmdir(t.file(box)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	delete(t.left, box)
	return true
}

// makeAnew makes the cgroup of a box. One of that name that has processes is
// another box's, which outlived its worker: two are never in one.
func (t *Tree) makeAnew(box string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.kern.mkdir(t.file(box))
	if errors.Is(err, fs.ErrExist) && t.kern.rmdir(t.file(box)) == nil {
		delete(t.left, box)
		err = t.kern.mkdir(t.file(box))
	}
	return err
}

// Again gives the cgroup of a box that outlived a worker before us; nil if it
// has none.
func (t *Tree) Again(box string) *Group {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.left[prefix+box] {
		return nil
	}
	delete(t.left, prefix+box)
	return &Group{t.file(prefix + box), t.kern}
}

// Has tells whether the tree can hold a limit of this controller. A nil tree
// can hold none.
func (t *Tree) Has(controller string) bool { return t != nil && slices.Contains(t.on, controller) }

// Limits are what a box may have in all; 0 is no limit.
type Limits struct {
	Pids     int     // processes and threads
	MemoryMB int     // MiB, with the box's files in memory
	CPU      float64 // processors
}

// Check refuses a limit that was asked for and cannot be held here. Processes
// are bounded without a cgroup as well, by the box's own user namespace.
func (t *Tree) Check(l Limits, why error) error {
	for _, row := range []struct {
		asked      bool
		controller string
	}{{l.MemoryMB > 0, "memory"}, {l.CPU > 0, "cpu"}} {
		if row.asked && !t.Has(row.controller) {
			if why == nil {
				why = errors.New("the cgroup that was delegated lacks this controller")
			}
			return reason.New(reason.LimitsUnavailable, "the %s limit cannot be held here: %w", row.controller, why)
		}
	}
	return nil
}
