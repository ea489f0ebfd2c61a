package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

func writeChecks() []Check {
	return []Check{
		{"W1", writable, seed, "make a folder in every place that is not the box's own",
			"EROFS in /usr, /etc, /opt and the code; ENOENT elsewhere", []string{"writable-usr", "bind-home"},
			"outside: the folders are unchanged afterwards", writesRefused},
		{"W2", writable, seed, "write the work folder and the bot's folder; ask the egress gate for this machine",
			"the writes land; the gate answers 403", []string{"no-work", "egress-open", "no-egress"},
			"outside: the files are there afterwards, and the port was not reached", ownFoldersAndGate},
	}
}

func writesRefused(f *Fixture) Result {
	if len(f.ReadOnly) == 0 || len(f.Unbound) == 0 {
		return unclear("the fixture names no folder to try")
	}
	for _, dir := range f.ReadOnly {
		if r := refusedWrite(dir, unix.EROFS); r.Verdict != Pass {
			return r
		}
	}
	for _, dir := range f.Unbound {
		if r := refusedWrite(dir, unix.ENOENT); r.Verdict != Pass {
			return r
		}
	}
	return pass("%d folders are read-only, %d are not there", len(f.ReadOnly), len(f.Unbound))
}

// refusedWrite makes a folder. EROFS comes before any question of permission,
// so it tells a read-only mount from a folder that merely belongs to somebody
// else: EACCES proves nothing about the box.
func refusedWrite(dir string, want unix.Errno) Result {
	probe := filepath.Join(dir, "boxprobe-"+strconv.Itoa(os.Getpid()))
	err := unix.Mkdir(probe, 0o700)
	switch {
	case err == nil:
		unix.Rmdir(probe)
		return fail("a folder could be made in %s", dir)
	case err == want:
		return pass("refused")
	case errors.Is(err, unix.ENOENT):
		return pass("not in the box")
	case err == unix.EACCES && want == unix.EROFS && !mountedReadOnly(dir):
		return fail("the mount of %s can be written: only another wall keeps us out", dir)
	default:
		return unclear("make a folder in %s: %v, want %v", dir, err, want)
	}
}

func mountedReadOnly(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) != nil || st.Flags&unix.ST_RDONLY != 0
}

func ownFoldersAndGate(f *Fixture) Result {
	if f.WorkDir == "" || f.BotDir == "" || f.EgressPort == 0 {
		return unclear("the fixture names no folder or no gate")
	}
	for _, dir := range []string{f.WorkDir, f.BotDir} {
		err := os.WriteFile(filepath.Join(dir, "boxprobe.w2"), []byte(f.Marker), 0o600)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return unclear("the disk is full: %v", errno(err)) // nobody's wall has moved
		}
		if err != nil {
			return fail("a folder of the box's own cannot be written: %v", errno(err))
		}
	}
	target := net.JoinHostPort("127.0.0.1", strconv.Itoa(f.LoopbackPort))
	a, err := ask(f.EgressPort, "CONNECT "+target, target, nil)
	switch {
	case err != nil:
		return unclear("the egress gate does not answer: %v", errno(err))
	case a.status != 403:
		return fail("the egress gate answers %d for this machine's own address", a.status)
	}
	return pass("both folders can be written; the egress gate answers 403")
}
