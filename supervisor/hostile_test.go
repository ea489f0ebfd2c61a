package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What a worker writes that is no frame, or none that was due: it is replaced
// in time, and root has done nothing for it: no file, no process, no memory,
// and no more than a few lines in the log.
func TestHostileFrames(t *testing.T) {
	bothAtOnce(t, func(t *testing.T, child bool) {
		for _, mode := range []string{"half", "half-twice", "half-then-silence", "stall", "replay", "replay-hello", "next-epoch",
			"last-epoch", "gap", "empty-lines", "noise", "one-long-line", "lease-flood", "slow"} {
			t.Run(mode, func(t *testing.T) {
				// With users for bots, so that there is something to be had; the
				// watchdog's period makes pings that are missed a matter of seconds.
				r := start(t, world{child: child, vars: "OMB_BOT_USERS=1 WATCHDOG_USEC=400000 OMB_DRAIN_SECONDS=1 OMB_BOX_FAKE=" + mode})
				r.await(t, "the first worker", func() bool { return r.starts() >= 1 })
				pid := r.image()
				r.await(t, "a second worker", func() bool { return r.starts() >= 2 })
				if n := files(pid); n > 40 {
					t.Errorf("%d files are open", n)
				}
				if kb := residentKB(pid); kb > 20<<10 {
					t.Errorf("it takes %d kB", kb)
				}
				table := read(fmt.Sprintf("/proc/%d/root/var/lib/botbox.ctl/bot-users", pid))
				if asked := slices.Contains([]string{"replay", "lease-flood"}, mode); strings.Contains(table, " x\n") != asked {
					t.Errorf("the table of bots is %q", table) // what was rightly asked for is there: the control
				}
				for _, p := range descendants(pid) {
					if line := read(fmt.Sprintf("/proc/%d/cmdline", p)); line != "" && !strings.HasPrefix(line, "botbox\x00serve") && !strings.HasPrefix(line, "botbox-supervisor") {
						t.Errorf("there is a process %q", line)
					}
				}
				folders, _ := filepath.Glob(fmt.Sprintf("/proc/%d/root/run/botbox.*", pid))
				for _, folder := range folders { // root's own
					entries, err := os.ReadDir(folder)
					for _, e := range entries {
						if !strings.HasSuffix(e.Name(), "-worker") { // for a moment, while the next one starts
							t.Errorf("%s holds %s", folder, e.Name())
						}
					}
					if err != nil {
						t.Error(err)
					}
				}
				if len(folders) == 0 {
					t.Error("there is no folder of root's to look through")
				}
				began := time.Now()
				send(t, pid, syscall.SIGTERM)
				if code := r.status(t); code == 2 || time.Since(began) > 5*time.Second {
					t.Errorf("status %d after %v", code, time.Since(began))
				}
				said := strings.Count(r.stderr.String(), "botbox-supervisor: the worker is replaced: ")
				if mode == "half" { // it ended by itself
					said += strings.Count(r.stderr.String(), "botbox-supervisor: the worker ended with status 0")
				}
				if lines := strings.Count(r.stderr.String(), "botbox-supervisor: "); said == 0 || lines > 4*r.starts()+4 {
					t.Errorf("it said %d lines about %d workers: %.2000s", lines, r.starts(), r.stderr.String())
				}
			})
		}
	})
}

func residentKB(pid int) (kb int) {
	for line := range strings.Lines(read(fmt.Sprintf("/proc/%d/status", pid))) {
		fmt.Sscanf(line, "VmRSS: %d kB", &kb)
	}
	return kb
}
