package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// botsUser is the first bot's, of the range that is the default.
const botsUser = "300000"

// botsBoxOutlives: a box that is its bot's own user's, in a cgroup of its own,
// is both under the next worker, which holds it to its limit and sees its end.
func botsBoxOutlives(*bed) (string, error) {
	r, b, err := place{name: "bots", group: "bots", before: delegate, vars: []string{"OMB_BOT_USERS=1"}}.start()
	if err != nil {
		return "", err
	}
	defer r.kill()
	if _, err := b.steps(); err != nil {
		return r.err.String(), err
	}
	spec := fmt.Sprintf(`{"v":1,"id":"own","bot":"alice","cwd":"/tmp","argv":["perl","-e",%q],"limits":{"memory_mb":64}}`,
		`my $go; $SIG{USR1} = sub { $go = 1 }; $| = 1; print "up\n"; sleep 1 until $go; `+hog)
	own := b.command(spec, programs+"/botbox", "run", "--spec", "-")
	if err := b.await(own); err != nil {
		return "", err
	}
	defer own.kill()
	engine, group := b.pid("own"), b.part("box-own")
	if n := ofUser(botsUser); n == 0 || engine <= 1 {
		return "", fmt.Errorf("the box is process %d, and %d are the bot's", engine, n)
	}
	took, err := b.anotherWorker()
	if err != nil {
		return r.err.String(), err
	}
	if now := b.pid("own"); now != engine || read(group, "cgroup.procs") == "" || read(group, "memory.max") != "67108864" {
		return fmt.Sprint(engine, now), errors.New("the next worker does not have the box, or its cgroup")
	}
	if err := unix.Kill(engine, unix.SIGUSR1); err != nil {
		return "", err
	}
	var told string
	err = eventually(60*time.Second, func() bool {
		told, _ = b.get("/v1/boxes/own")
		return strings.Contains(told, `"end":"oom"`) && strings.Contains(told, `"code":137`)
	})
	if err != nil {
		held := read(group, "memory.current") + " of it held, " + read(group, "memory.events") + ", by " + read(group, "cgroup.procs")
		return told + held + own.out.String() + own.err.String() + r.err.String(), errors.New("it did not end of its memory")
	}
	if out := own.end(); out.code != 137 { // and its outer bubblewrap, the bot's too, is waited for
		return out.String(), errors.New("it ended otherwise for its asker")
	}
	// The next worker's self-check runs beside all this, on one slow processor.
	if err := eventually(40*time.Second, func() bool { _, err := os.Stat(group); return err != nil && ofUser(botsUser) == 0 }); err != nil {
		return fmt.Sprintf("cgroup %q holds %q, %d processes are the bot's", group, read(group, "cgroup.procs"), ofUser(botsUser)), errors.New("something of it stays")
	}
	r.Process.Signal(unix.SIGTERM)
	if out := r.end(); out.code != 0 {
		return out.String(), errors.New("it did not stop well")
	}
	return took.String(), nil
}

// anotherWorker kills the worker and waits for the next one.
func (b *bed) anotherWorker() (time.Duration, error) {
	old := find("serve --control")
	if len(old) != 1 {
		return 0, fmt.Errorf("there is no one worker: %v", old)
	}
	begin := time.Now()
	unix.Kill(old[0], unix.SIGKILL)
	err := eventually(30*time.Second, func() bool {
		now := find("serve --control")
		_, err := b.get("/v1/boxes")
		return len(now) == 1 && now[0] != old[0] && err == nil
	})
	return time.Since(begin), err
}

// ofUser counts the processes of a user.
func ofUser(uid string) (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, path := range all {
		for line := range strings.Lines(read(path)) {
			if f := strings.Fields(line); len(f) == 5 && f[0] == "Uid:" && f[1] == uid {
				n++
			}
		}
	}
	return n
}
