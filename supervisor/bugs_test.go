package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// gone waits until no process of ours is left: as a child the shell has looked,
// as PID 1 the kernel has seen to it.
func (r *running) gone(t *testing.T, child bool) {
	t.Helper()
	if left := r.report("left"); child && (left == "" || strings.Contains(left, r.bin) || strings.Contains(left, "bwrap")) {
		t.Errorf("left behind: %q", left)
	}
	if n := len(descendants(r.Process.Pid)); n > 0 {
		t.Errorf("%d processes are left", n)
	}
}

// bubblewrap 198: one with the setuid bit and hidden processes hang. It is not
// used at all.
func TestBug_bubblewrap198_Setuid(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		dir := t.TempDir()
		for _, d := range []string{dir, filepath.Dir(dir)} {
			os.Chmod(d, 0o755)
		}
		for mode, want := range map[os.FileMode]int{0o755 | os.ModeSetuid: 125, 0o755: 0} {
			if out, err := exec.Command("cp", "/usr/bin/bwrap", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
			if err := os.Chmod(dir+"/bwrap", mode); err != nil {
				t.Fatal(err)
			}
			r := realWorld(t, child, []string{"PATH=" + dir + ":/usr/sbin:/usr/bin:/sbin:/bin"}, "--", "echo", "ran")
			status := r.status(t)
			if refused := strings.Contains(r.stderr.String(), "reason: bwrap-setuid\n"); status != want || refused != (want != 0) || (r.stdout.String() == "ran\n") != (want == 0) {
				t.Errorf("mode %v: %d %q %s", mode, status, r.stdout.String(), r.stderr.String())
			}
			r.gone(t, child)
		}
	})
}

// bubblewrap 505: a masked /proc gives no box, says so, and crashes nothing.
func TestBug_bubblewrap505_MaskedProc(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		for setup, want := range map[string]int{"SETUP=mount -t tmpfs t /proc/sys/fs": 125, "SETUP=true": 0} {
			r := realWorld(t, child, []string{setup}, "--", "echo", "ran")
			status := r.status(t)
			if refused := strings.Contains(r.stderr.String(), "reason: proc-masked\n"); status != want || refused != (want != 0) || (r.stdout.String() == "ran\n") != (want == 0) {
				t.Errorf("%s: %d %q %s", setup, status, r.stdout.String(), r.stderr.String())
			}
			r.gone(t, child)
		}
	})
}

// served starts a supervisor and waits for its worker.
func served(t *testing.T, child bool, vars ...string) *running {
	t.Helper()
	r := realWorld(t, child, vars)
	r.await(t, "the worker", func() bool { _, err := os.Stat(r.out + "/run/api.sock"); return err == nil })
	return r
}

// leased is a box of the worker's, asked for by the account.
func (r *running) leased(t *testing.T, name string, argv ...string) (*exec.Cmd, *output) {
	t.Helper()
	cmd := r.as(t, "", append([]string{r.bin + "/botbox", "run", "--json", "--cwd", "/tmp", "--conversation", name, "--"}, argv...)...)
	cmd.Env = append(cmd.Env, "OMB_BOT_USERS=0")
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, out
}

// golang/go 27505: the worker starts each box's keeper from one thread that
// lives as long as it does. A box lives on whatever comes and goes beside it.
func TestBug_golang27505_ABoxOutlivesOthers(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		r := served(t, child)
		_, long := r.leased(t, "long", "sh", "-c", "echo up; while :; do sleep 0.2; echo tick; done")
		r.await(t, "the box", func() bool { return strings.Contains(long.String(), "up\n") })
		for range 20 {
			cmd, out := r.leased(t, "short", "true")
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		was := strings.Count(long.String(), "tick\n")
		r.await(t, "the box still ticks", func() bool { return strings.Count(long.String(), "tick\n") > was+2 })
	})
}

// tini 141, 7, 67, supervisor 936: orphans come to us also where we are not
// PID 1, are buried, and how they end is no business of ours.
func TestBug_tini141_supervisor936_Orphans(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		r := start(t, world{child: child, args: []string{"--plain", "--", "sh", "-c", `
			for end in 'exit 1' 'kill -9 $$' 'kill -SEGV $$' 'exit 100' 'exit 0'; do
				(setsid sh -c "while [ ! -e /out/go ]; do sleep 0.05; done; $end" orphan &)
			done
			echo up >/out/up
			while [ ! -e /out/end ]; do sleep 0.05; done; exit 5`}})
		r.await(t, "the command", func() bool { return r.report("up") != "" })
		pid := r.supervisor(t)
		orphans := func() (n int) {
			for _, p := range descendants(pid) {
				if strings.HasSuffix(read(fmt.Sprintf("/proc/%d/cmdline", p)), "\x00orphan\x00") &&
					strings.TrimSpace(section(read(fmt.Sprintf("/proc/%d/status", p)), "PPid:")) == fmt.Sprint(pid) {
					n++
				}
			}
			return n
		}
		r.await(t, "five orphans as children of the supervisor", func() bool { return orphans() == 5 })
		os.WriteFile(filepath.Join(r.out, "go"), nil, 0o644)
		r.await(t, "their end", func() bool { return orphans() == 0 && zombies(pid) == 0 })
		time.Sleep(100 * time.Millisecond)
		os.WriteFile(filepath.Join(r.out, "end"), nil, 0o644)
		if got := r.status(t); got != 5 || r.starts() != 1 {
			t.Errorf("exit %d after %d workers: %s", got, r.starts(), r.stderr.String())
		}
	})
}

// dumb-init 136: the command of a terminal gets no signal at its start that
// nobody sent.
func TestBug_dumbinit136_StraySignals(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		ours, theirs := terminal(t)
		defer ours.Close()
		r := start(t, world{child: child, tty: theirs, args: []string{"--plain", "--", "perl", "-e", `
			for my $s (qw(HUP CONT INT QUIT TERM TSTP TTIN TTOU USR1 USR2 WINCH)) { $SIG{$s} = sub { $n{$s}++ } }
			sub told { my $to = shift; open my $f, ">", "/out/$to.new"; print $f join(" ", -t 0 ? "tty" : "none", map { "$_=$n{$_}" } sort keys %n), "\n"; close $f; rename "/out/$to.new", "/out/$to" }
			for (1 .. 10) { select undef, undef, undef, 0.05 }
			told("quiet"); kill HUP => $$; kill CONT => $$; select undef, undef, undef, 0.05; told("control"); exit 3`}})
		theirs.Close()
		if got := r.status(t); got != 3 {
			t.Errorf("exit %d", got)
		}
		if quiet, control := r.report("quiet"), r.report("control"); quiet != "tty\n" || control != "tty CONT=1 HUP=1\n" {
			t.Errorf("it got %q, and then %q", quiet, control)
		}
	})
}

func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// dumb-init 191: what has made a session of its own ends with the rest, in a
// box and beside it.
func TestBug_dumbinit191_SessionsOfTheirOwn(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		for i, args := range [][]string{{"--"}, {"--plain", "--"}} {
			sleep := fmt.Sprint(47120 + i)
			r := realWorld(t, child, nil, append(args, "sh", "-c", "setsid sleep "+sleep+" & (setsid sleep "+sleep+" &); echo up; sleep 300")...)
			alive := func() (n int) {
				all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
				for _, p := range all {
					if read(p) == "sleep\x00"+sleep+"\x00" {
						n++
					}
				}
				return n
			}
			r.await(t, "the grandchildren", func() bool { return strings.Contains(r.stdout.String(), "up\n") && alive() == 2 })
			send(t, r.supervisor(t), syscall.SIGTERM)
			if got := r.status(t); got != 143 || alive() != 0 {
				t.Errorf("%q: exit %d, %d are left: %s", args, got, alive(), r.stderr.String())
			}
		}
	})
}

// systemd 10444: a closed stderr, or a journal that is gone, ends nothing.
func TestBug_systemd10444_ClosedStderr(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		needRoot(t)
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r := startTo(t, writer, world{child: child})
		writer.Close()
		r.await(t, "the worker", func() bool { return r.report("worker") != "" })
		reader.Close()
		pid := r.image()
		for i := range 3 { // each is a line that nobody reads
			worker := descendants(pid)
			if len(worker) != 1 {
				t.Fatalf("children: %v", worker)
			}
			time.Sleep(600 * time.Millisecond) // settled: it is started again at once
			send(t, worker[0], syscall.SIGKILL)
			r.await(t, "another worker", func() bool { return r.starts() == 2+i && len(descendants(pid)) == 1 })
		}
		send(t, pid, syscall.SIGTERM)
		if got := r.status(t); got != 0 && got != 137 {
			t.Errorf("exit %d", got)
		}
	})
}

// The command's status is exact where it ends in the middle of a storm, and the
// supervisor ends with nothing left.
func TestBug_uroot746_TheCommandEndsInAStorm(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		r := start(t, world{child: child, args: []string{"--plain", "--", "perl", "-e", `
			for my $i (1 .. 2000) {
				my $p = fork; defined $p or die "fork: $!";
				if (!$p) { fork and exit; select undef, undef, undef, rand 2; exit $i % 256 }
				waitpid $p, 0;
			} kill SEGV => $$; sleep 60`}})
		if got := r.status(t); got != 139 {
			t.Errorf("exit %d: %s", got, r.stderr.String())
		}
		if names := strings.Fields(r.report("comms")); child && strings.Join(names, " ") != "sh" {
			t.Errorf("left: %q", names)
		}
	})
}
