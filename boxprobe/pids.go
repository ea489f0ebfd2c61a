package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func pidChecks() []Check {
	mutation := []string{"share-pid"}
	return []Check{
		{"P1", pidNS, seed, "look for the canary in /proc", "no process but the box's own carries its mark", mutation,
			"outside: the canary's command line holds the marker; inside: our own can be read, and PID 1 is in the list", canaryUnseen},
		{"P2", pidNS, seed, "read the canary's environment", "ENOENT", mutation,
			"outside: it can be read in /proc and holds the marker", canaryEnviron},
		{"P3", pidNS, seed, "signal the canary (signal 0)", "ESRCH", mutation,
			"outside: the canary is alive afterwards; inside: we can signal ourselves", canarySignal},
		{"P4", pidNS, seed, "list all processes", "PID 1, our ancestors and our children", mutation,
			"inside: we are in the list, and PID 1 is", ownTree},
	}
}

func pidExtras() []Check {
	return []Check{
		{"P06", privileges, full, "look for open files beyond 0, 1 and 2 at the first instruction", "none", []string{"fd-leak"},
			"outside: bubblewrap is given two more; inside: 0 is found by the same listing", noInherited},
		{"P07", pidNS, full, "compare namespaces with the host's", "all differ",
			[]string{"share-pid", "share-net", "share-ipc", "share-uts", "share-cgroup"}, "outside: they are read of a process there", namespacesDiffer},
		{"P14", privileges, full, "read the five capability sets", "all empty", []string{"keep-caps"},
			"inside: all five are found", noCapabilities},
		{"P15", privileges, full, "read no_new_privs", "1", nil, "inside: the line is found",
			func(*Fixture) Result { return statusIs("NoNewPrivs", "1") }},
	}
}

func canaryUnseen(f *Fixture) Result {
	tree, err := readTree()
	if err != nil {
		return unclear("list processes: %v", err)
	}
	if own := cmdline(os.Getpid()); len(own) == 0 {
		return unclear("not even our own command line can be read")
	}
	if _, ok := tree[1]; !ok {
		return fail("PID 1 is hidden from us, so it is not the box's own")
	}
	for pid := range tree {
		// The marker may stand in the path of the fixture that the box and we
		// were started with.
		if !tree.ours(pid) && bytes.Contains(cmdline(pid), []byte(f.Marker)) {
			return fail("the canary is process %d here", pid)
		}
	}
	return pass("none of %d processes is the canary", len(tree))
}

func canaryEnviron(f *Fixture) Result {
	if f.CanaryPID == 0 {
		return unclear("the fixture names no canary")
	}
	content, err := os.ReadFile(procFile(f.CanaryPID, "environ"))
	switch {
	case errors.Is(err, unix.ENOENT) && hidden(f.CanaryPID):
		return fail("the canary is there, and only a mount option of /proc hides it")
	case errors.Is(err, unix.ENOENT):
		return pass("no such process")
	case bytes.Contains(content, []byte(f.Marker)):
		return fail("it can be read")
	case err != nil && isCanary(f):
		// The user namespace is a second wall before it. It does not make up for
		// the first: the file is there.
		return fail("the canary is there, and only %v keeps its environment closed", errno(err))
	}
	return unclear("another process has the canary's number")
}

// isCanary tells whether the process of the canary's number is the canary, for
// a small number may well be one of the box's own.
func isCanary(f *Fixture) bool {
	return bytes.Contains(cmdline(f.CanaryPID), []byte(f.Marker))
}

// hidden tells a process that is there and not shown in /proc, as under
// hidepid, from one that is not there.
func hidden(pid int) bool {
	_, err := os.Stat(procFile(pid, ""))
	return errors.Is(err, unix.ENOENT) && unix.Kill(pid, 0) != unix.ESRCH
}

func canarySignal(f *Fixture) Result {
	if f.CanaryPID <= 1 {
		return unclear("the fixture names no canary")
	}
	if err := unix.Kill(os.Getpid(), 0); err != nil {
		return unclear("we cannot signal ourselves: %v", err)
	}
	err := unix.Kill(f.CanaryPID, 0)
	switch {
	case err == unix.ESRCH:
		return pass("no such process")
	case hidden(f.CanaryPID):
		return fail("the canary can be signalled, though /proc hides it")
	case !isCanary(f):
		return unclear("another process has the canary's number")
	case err == nil:
		return fail("the canary can be signalled")
	}
	return fail("the canary is there, and only %v keeps it from our signal", err)
}

func ownTree(*Fixture) Result {
	tree, err := readTree()
	if err != nil {
		return unclear("list processes: %v", err)
	}
	if _, ok := tree[1]; !ok {
		return fail("PID 1 is hidden from us, so it is not the box's own")
	}
	for _, pid := range slices.Sorted(maps.Keys(tree)) {
		if !tree.ours(pid) {
			return fail("process %d is not of this box", pid)
		}
	}
	return pass("%d processes, all of this box", len(tree))
}

// processes maps each process to its parent.
type processes map[int]int

func readTree() (processes, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, errno(err)
	}
	tree := processes{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if parent, err := strconv.Atoi(statusField(procFile(pid, "status"), "PPid")); err == nil {
			tree[pid] = parent
		} // else it ended while we looked
	}
	if _, ok := tree[os.Getpid()]; !ok {
		return nil, errors.New("the list lacks ourselves")
	}
	return tree, nil
}

// ours tells whether a process is PID 1, an ancestor of ours or a descendant.
func (tree processes) ours(pid int) bool {
	return pid == 1 || tree.descends(os.Getpid(), pid) || tree.descends(pid, os.Getpid())
}

func (tree processes) descends(pid, from int) bool {
	for range len(tree) + 1 {
		if pid == from {
			return true
		}
		pid = tree[pid]
	}
	return false
}

func procFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

func cmdline(pid int) []byte {
	content, _ := os.ReadFile(procFile(pid, "cmdline"))
	return content
}

// statusField gives the value of a line "Name:\tvalue" of a status file, or "".
func statusField(file, name string) string {
	content, _ := os.ReadFile(file)
	for line := range strings.Lines(string(content)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func statusIs(name, want string) Result {
	switch got := statusField("/proc/self/status", name); got {
	case "":
		return unclear("the kernel does not tell %s", name)
	case want:
		return pass("%s is %s", name, got)
	default:
		return fail("%s is %s", name, got)
	}
}

func noCapabilities(*Fixture) Result {
	var results []Result
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		results = append(results, statusIs(set, "0000000000000000"))
	}
	if r := worst(results...); r.Verdict != Pass {
		return r
	}
	return pass("all five sets are empty")
}

func namespacesDiffer(f *Fixture) Result {
	if len(f.Namespaces) == 0 {
		return unclear("the fixture names no namespace")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Namespaces)) {
		own, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return unclear("read our %s namespace: %v", name, errno(err))
		}
		if own == f.Namespaces[name] {
			return fail("the %s namespace is the host's", name)
		}
	}
	return pass("%d namespaces, none the host's", len(f.Namespaces))
}

// openFDs lists what is open, as "number target". It opens the folder without
// package os, whose poller would add files of its own.
func openFDs() []string {
	dir, err := unix.Open("/proc/self/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(dir)
	var names, open []string
	for buf := make([]byte, 8192); ; {
		n, err := unix.ReadDirent(dir, buf)
		if err != nil || n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
	for _, name := range names {
		target, err := os.Readlink("/proc/self/fd/" + name)
		if err == nil && name != strconv.Itoa(dir) {
			open = append(open, fmt.Sprintf("%s %s", name, target))
		}
	}
	return open
}

func noInherited(f *Fixture) Result {
	standard := 0
	for _, fd := range f.inherited {
		number, target, _ := strings.Cut(fd, " ")
		switch {
		case number == "0" || number == "1" || number == "2":
			standard++
		case target == "anon_inode:[eventpoll]" || target == "anon_inode:[eventfd]":
			// Go's own poller, which starts before main when a standard file
			// does not block.
		default:
			return fail("%s is open", fd)
		}
	}
	if standard == 0 {
		return unclear("not even the standard files are listed")
	}
	return pass("none")
}
