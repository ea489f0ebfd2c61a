package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/rig"
)

// filelock 549, logrotate 607: a FIFO where a folder or a file is expected
// hangs nobody; whoever must have the thing there refuses at once.
func TestBug_filelock549_logrotate607_PlantedFIFOs(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		for path, reason := range map[string]string{
			"run/botbox": "not-yours", "run/botbox.ctl": "not-yours", "var/lib/botbox": "not-yours",
			"var/lib/botbox.ctl": "bot-users-range", "var/lib/botbox.ctl/bot-users": "bot-users-range",
		} {
			began := time.Now()
			r := start(t, world{child: child, vars: "OMB_BOT_USERS=1", setup: `p="$W/r/` + path + `" && mkdir -p "${p%/*}" && { chmod 700 "$W/r/var/lib/botbox.ctl" 2>/dev/null || :; } && mkfifo "$p"`})
			if got := r.status(t); got != 100 || !strings.Contains(r.stderr.String(), "reason: "+reason+"\n") || r.starts() != 0 || time.Since(began) > 5*time.Second {
				t.Errorf("%s: exit %d after %v and %d workers: %s", path, got, time.Since(began), r.starts(), r.stderr.String())
			}
		}
	})
}

// In the worker's own folders any process of the account's can plant one. The
// worker either takes it away or ends with its reason; it never hangs on it.
func TestBug_filelock549_TheWorkersFiles(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		for name, works := range map[string]bool{"run/lease.sock": true, "run/api.sock": true, "state/botbox.db": false, "state/audit.log": false} {
			top := rig.Dir(t)
			if err := errors.Join(os.Chmod(top, 0o755), os.Chown(top, 0, 0), os.Mkdir(top+"/run", 0o700), os.Mkdir(top+"/state", 0o700), unix.Mkfifo(top+"/"+name, 0o600)); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{"/run", "/state", "/" + name} {
				rig.Give(t, top+path)
			}
			r := realWorldIn(t, top, rig.Programs(t), child, nil)
			began := time.Now()
			if works {
				r.await(t, "both sockets", func() bool { return isSocket(top+"/run/lease.sock") && isSocket(top+"/run/api.sock") })
				send(t, r.supervisor(t), syscall.SIGTERM)
			}
			status := r.status(t)
			if took := time.Since(began); took > 15*time.Second || (status == 0) != works || !works && !strings.Contains(r.stderr.String(), "reason: ") {
				t.Errorf("%s: exit %d after %v: %s", name, status, took, r.stderr.String())
			}
		}
	})
}

func isSocket(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.Mode()&os.ModeSocket != 0
}

// moby 44562, containerd 7442: the network namespace does not hold AF_VSOCK, so
// the filter must. Sockets are made here and never connected.
func TestBug_moby44562_containerd7442_Vsock(t *testing.T) {
	const ask = `for my $f (1, 2, 10, 40) { print "$f:", socket(my $s, $f, 1, 0) ? "yes" : $!{EAFNOSUPPORT} ? "no" : "$!", " " }`
	bothWays(t, func(t *testing.T, child bool) {
		for mode, want := range map[string]string{"--": "1:yes 2:yes 10:yes 40:no ", "--plain": "1:yes 2:yes 10:yes 40:yes "} {
			args := []string{mode, "--", "perl", "-MErrno", "-e", ask}
			if mode == "--" {
				args = args[1:]
			}
			r := realWorld(t, child, nil, args...)
			if status := r.status(t); status != 0 || r.stdout.String() != want {
				if mode == "--plain" && strings.Contains(r.stdout.String(), "40:no") {
					t.Log("positive control: this kernel has no AF_VSOCK, so nothing was refused")
					continue
				}
				t.Errorf("%s: %d %q, want %q: %s", mode, status, r.stdout.String(), want, r.stderr.String())
			}
		}
	})
}

// runc 2105, benchexec 841: what stands still can be killed. With the freezer
// of a cgroup it is tried in testbed/vm.
func TestBug_runc2105_benchexec841_StoppedBox(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		r := served(t, child)
		cmd, out := r.leased(t, "still", "sh", "-c", "sleep 4713 & echo up; sleep 4713")
		r.await(t, "the box", func() bool { return strings.Contains(out.String(), "up\n") })
		var box []int // below the bubblewrap that the asker has become
		r.await(t, "both sleeps", func() bool {
			sleeps := 0
			box = descendants(bwrapOf(t, cmd.Process.Pid))
			for _, pid := range box {
				if read(fmt.Sprintf("/proc/%d/cmdline", pid)) == "sleep\x004713\x00" {
					sleeps++
				}
			}
			return sleeps == 2 // before that a shell could be stopped in the middle of a vfork
		})
		r.await(t, "all of it stands still", func() bool {
			for _, pid := range box {
				send(t, pid, syscall.SIGSTOP)
			}
			return len(box) >= 3 && !slices.ContainsFunc(box, func(pid int) bool { return !strings.Contains(read(fmt.Sprintf("/proc/%d/status", pid)), "State:\tT") })
		})
		began := time.Now()
		kill := r.as(t, "", r.bin+"/botbox", "kill", r.boxID(t))
		var said output
		kill.Stdout, kill.Stderr = &said, &said
		if err := kill.Start(); err != nil {
			t.Fatal(err)
		}
		r.await(t, "the end of the engine and what it started", func() bool {
			return !slices.ContainsFunc(box, func(pid int) bool {
				return alive(pid) && strings.HasPrefix(read(fmt.Sprintf("/proc/%d/cmdline", pid)), "s")
			})
		})
		if took := time.Since(began); took > time.Second {
			t.Errorf("their end took %v", took)
		}
		if err := kill.Wait(); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %v: %s", err, time.Since(began), said.String())
		}
		cmd.Wait()
		for _, pid := range box {
			if alive(pid) {
				t.Errorf("alive: %q", read(fmt.Sprintf("/proc/%d/cmdline", pid)))
			}
		}
	})
}

func alive(pid int) bool {
	status := read(fmt.Sprintf("/proc/%d/status", pid))
	return status != "" && !strings.Contains(status, "State:\tZ")
}

// boxID is the id of the only box.
func (r *running) boxID(t *testing.T) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(mustOutput(t, r.as(t, "", r.bin+"/botbox", "ps")))), "\n")
	if len(lines) != 2 {
		t.Fatalf("not one box: %q", lines)
	}
	return strings.Fields(lines[1])[0]
}

// pelagos 459: a zombie is dead. Whoever asked for a box and never waits for it
// keeps neither a kill nor the supervisor's stop waiting.
func TestBug_pelagos459_Zombies(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		r := served(t, child)
		negligent := r.as(t, "", "perl", "-e", `fork or exec @ARGV; sleep 600`, r.bin+"/botbox", "run", "--cwd", "/tmp", "--", "sh", "-c", "echo up; sleep 4714")
		negligent.Env = append(negligent.Env, "OMB_BOT_USERS=0")
		out := &output{}
		negligent.Stdout, negligent.Stderr = out, out
		if err := negligent.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { negligent.Process.Kill(); negligent.Wait() }()
		r.await(t, "the box", func() bool { return strings.Contains(out.String(), "up\n") })
		began := time.Now()
		if text, err := r.as(t, "", r.bin+"/botbox", "kill", r.boxID(t)).CombinedOutput(); err != nil {
			t.Errorf("%v %s", err, text)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the kill took %v", took)
		}
		zombie := false
		for _, pid := range descendants(negligent.Process.Pid) {
			zombie = zombie || strings.Contains(read(fmt.Sprintf("/proc/%d/status", pid)), "State:\tZ")
		}
		if !zombie {
			t.Error("control: there is no zombie")
		}
		r.await(t, "the box is off the list", func() bool {
			return !strings.Contains(string(mustOutput(t, r.as(t, "", r.bin+"/botbox", "ps"))), "4714")
		})
		began = time.Now()
		send(t, r.supervisor(t), syscall.SIGTERM)
		if status, took := r.status(t), time.Since(began); status != 0 || took > 2*time.Second {
			t.Errorf("the stop: %d after %v", status, took)
		}
	})
}
