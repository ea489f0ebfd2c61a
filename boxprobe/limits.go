package main

import (
	"strings"

	"golang.org/x/sys/unix"
)

func limitExtras() []Check {
	return []Check{
		{"P17", limits, full, "read the size limit of core dumps", "0, also the hard one", []string{"core-on"},
			"inside: the limit can be read", noCoreDumps},
		{"L02", limits, full, "look for a writable tmpfs without a size", "none", []string{"no-limits"},
			"inside: /tmp is among the tmpfs mounts", everyTmpfsSized},
	}
}

// noCoreDumps matters because a core pattern that is a pipe runs a program as
// the machine's root on every crash in a box.
func noCoreDumps(*Fixture) Result {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return unclear("read it: %v", err)
	}
	if limit.Cur != 0 || limit.Max != 0 {
		return fail("%d of at most %d bytes", limit.Cur, limit.Max)
	}
	return pass("0")
}

// everyTmpfsSized reads the mounts' options: the kernel shows a size unless it
// is the default, half of the machine's memory.
func everyTmpfsSized(*Fixture) Result {
	all, err := readMounts()
	if err != nil {
		return unclear("read the list of mounts: %v", errno(err))
	}
	seenTmp, count := false, 0
	for _, m := range all {
		if m.fstype != "tmpfs" || unix.Access(m.point, unix.W_OK) != nil {
			continue
		}
		count++
		seenTmp = seenTmp || m.point == "/tmp"
		if !strings.Contains(","+strings.Join(m.super, ","), ",size=") {
			return fail("%s may take half of the machine's memory", m.point)
		}
	}
	if !seenTmp {
		return unclear("/tmp is no tmpfs that we can write")
	}
	return pass("all %d have one", count)
}
