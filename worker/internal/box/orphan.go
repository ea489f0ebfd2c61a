package box

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// A bubblewrap that is killed after it has cloned its first child, and before
// it has let that go on, leaves it behind: it waits for an event that nobody
// sends, for ever (containers/bubblewrap 529, 633 and 700). A child that has
// gone on, but has not yet asked to die with its parent, builds the box to its
// end. Both hold the box's entry socket, which no other process in the world
// has: that is how they are known, and never by a name.

// endHolders ends what is left of a box that did not come to be: it holds the
// other end of the entry socket.
func (k *Kit) endHolders() {
	endOthers(func(proc string) bool { return holds(proc, k.far) })
}

// endOthers kills the processes that are found, in pid namespaces that are not
// ours: a process that asks for boxes is never among them.
func endOthers(found func(proc string) bool) {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return
	}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		if ns, err := os.Readlink(filepath.Join(proc, "ns/pid")); err != nil || ns == own {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(proc))
		p, err := openProcess(pid) // before the look: from here on the number is its own
		if err != nil {
			continue
		}
		if found(proc) {
			p.Signal(unix.SIGKILL)
		}
		p.Close()
	}
}

// holds tells whether a process has a socket open, by the socket's inode.
func holds(proc string, inode uint64) bool {
	files, _ := os.ReadDir(filepath.Join(proc, "fd"))
	return slices.ContainsFunc(files, func(f os.DirEntry) bool {
		to, _ := os.Readlink(filepath.Join(proc, "fd", f.Name()))
		return to == fmt.Sprintf("socket:[%d]", inode)
	})
}
