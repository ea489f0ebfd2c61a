package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

func TestExitStatusIsTheCommands(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"sh", "-c", "exit 7"}, 7},
		{[]string{"--", "sh", "-c", "exit 160"}, 160},
		{[]string{"true"}, 0},
		{[]string{"sh", "-c", "kill -KILL $$"}, 137},
		{[]string{"sh", "-c", "kill -SEGV $$"}, 139},
		{[]string{"--plain", "--", "sh", "-c", "exit 7"}, 7},
		{[]string{"--plain", "--", "sh", "-c", "kill -TERM $$"}, 143},
		{[]string{"--plain", "--", "no-such-command"}, 127},
		{[]string{"--plain", "--", "/etc/passwd"}, 126},
		{[]string{"refuse"}, 111}, // the worker's error code is too_many_boxes
	} {
		bothWays(t, func(t *testing.T, child bool) {
			r := start(t, world{args: c.args, child: child})
			if got := r.status(t); got != c.want {
				t.Errorf("%q: exit %d, want %d: %s", c.args, got, c.want, r.stderr.String())
			}
			if r.report("end") != "<nil>" {
				t.Errorf("%q: the worker was not drained: %q", c.args, r.report("end"))
			}
		})
	}
}

func TestPlainCommandRunsAsTheAccount(t *testing.T) {
	r := start(t, world{vars: "SECRET_KEY=canary NOTIFY_SOCKET=/x HOME=/root",
		args: []string{"--plain", "--", "sh", "-c", `id -u; id -G; echo $SECRET_KEY $HOME $NOTIFY_SOCKET; grep -E 'Cap|NoNew' /proc/self/status | cut -f2 | sort -u | tr '\n' ' '`}})
	status := r.status(t)
	id := account(t)
	want := fmt.Sprintf("%d\n%d\ncanary %s\n0000000000000000 1 ", id.UID, id.GID, id.Home)
	if status != 0 || r.stdout.String() != want {
		t.Errorf("exit %d, printed\n%s\nwant\n%s", status, r.stdout.String(), want)
	}
}

func TestHostileWorkersAreReplaced(t *testing.T) {
	for _, mode := range []string{"long", "seq", "epoch", "verb", "unasked", "lease", "twice", "flood", "close",
		"vault-nonsense", "vault-lie", "vault-many", "vault-close", "vault-unread"} {
		t.Run(mode, func(t *testing.T) {
			r := start(t, world{vars: "OMB_BOX_FAKE=" + mode})
			r.await(t, "a second worker", func() bool { return r.starts() >= 2 })
			pid := r.supervisor(t)
			send(t, pid, syscall.SIGTERM)
			if got := r.status(t); got == 2 || got == 100 {
				t.Errorf("exit %d: %s", got, r.stderr.String())
			}
			if !strings.HasSuffix(mode, "close") && !strings.Contains(r.stderr.String(), "the worker is replaced: ") {
				t.Errorf("said nothing: %s", r.stderr.String())
			}
		})
	}
}

// What a worker left in the vault is closed with its own end, and what was
// refused at once: under the third worker no file of the first two is open.
func TestAHostileWorkerLeavesNothingInTheVault(t *testing.T) {
	for _, mode := range []string{"vault-lie", "vault-many", "vault-unread"} {
		r := start(t, world{vars: "OMB_BOX_FAKE=" + mode})
		r.await(t, "a third worker", func() bool { return r.starts() >= 3 })
		pid := r.supervisor(t)
		most := 40
		if mode == "vault-unread" {
			most += 2 * 512 // one that lives has what it is given
		}
		if n := files(pid); n > most {
			t.Errorf("%s: %d files", mode, n)
		}
		r.await(t, "nothing is left of the dead ones", func() bool { return files(pid) <= most })
		send(t, pid, syscall.SIGTERM)
		r.status(t)
	}
}

// A worker that does nothing but allowed things, as fast as it can, keeps
// nobody from being heard.
func TestAFloodOfDepositsDelaysNoStop(t *testing.T) {
	r := start(t, world{vars: "OMB_BOX_FAKE=vault-flood"})
	r.await(t, "the worker", func() bool { return r.starts() == 1 })
	pid := r.supervisor(t)
	time.Sleep(300 * time.Millisecond)
	if n := files(pid); n > 40 {
		t.Errorf("%d files", n)
	}
	began := time.Now()
	send(t, pid, syscall.SIGTERM)
	if got := r.status(t); got == 2 || time.Since(began) > 8*time.Second {
		t.Errorf("exit %d after %v: %s", got, time.Since(began), r.stderr.String())
	}
}

func TestASilentWorkerIsAbortedAndReplaced(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		r := start(t, world{child: child, vars: "OMB_BOX_FAKE=silent"})
		r.await(t, "the first worker", func() bool { return r.starts() == 1 })
		began := time.Now()
		r.await(t, "the Go runtime's stacks", func() bool { return strings.Contains(r.stderr.String(), "SIGABRT") })
		if took := time.Since(began); took > 10*time.Second { // hello must be answered in five
			t.Errorf("the peer that never came was waited for %v", took)
		}
		r.await(t, "a second worker", func() bool { return r.starts() >= 2 })
	})
}

func TestWorkersThatEndAtOnce(t *testing.T) {
	for _, c := range []struct {
		mode, says string
		want       int
		starts     int
	}{
		{"exit7", "reason: worker-crashes", 111, 5},
		{"exit100", "status 100", 100, 1},
		{"skew", "reason: version-skew", 100, 1},
	} {
		r := start(t, world{vars: "OMB_BOX_FAKE=" + c.mode})
		got := r.status(t)
		if got != c.want || r.starts() != c.starts || !strings.Contains(r.stderr.String(), c.says) {
			t.Errorf("%s: exit %d after %d starts, want %d after %d: %s", c.mode, got, r.starts(), c.want, c.starts, r.stderr.String())
		}
	}
}

// The command's box is our child, and no worker's: it outlives them all, and
// its status is ours.
func TestTheCommandOutlivesItsWorkers(t *testing.T) {
	for _, child := range []bool{false, true} {
		r := start(t, world{child: child, vars: "OMB_BOX_FAKE=die-in-box", args: []string{"sh", "-c", "while [ ! -e /out/go ]; do sleep 0.05; done; exit 7"}})
		r.await(t, "a third worker", func() bool { return r.starts() >= 3 })
		os.WriteFile(filepath.Join(r.out, "go"), nil, 0o644)
		if got := r.status(t); got != 7 || !strings.Contains(r.stderr.String(), "the worker ended with status 9") {
			t.Errorf("child %t: exit %d: %s", child, got, r.stderr.String())
		}
	}
}

// What the command's box is made of comes through a pipe: the program that
// becomes it has no more in its environment than the worker.
func TestTheCommandsBoxIsToldByPipe(t *testing.T) {
	r := start(t, world{vars: "SECRET_KEY=canary NOTIFY_SOCKET=/nowhere LANG=C.UTF-8", args: []string{"sh", "-c", "exit 7", "two words"}})
	status := r.status(t)
	var box struct {
		Env, Args []string
		Start     wire.StartSpec
	}
	if err := json.Unmarshal([]byte(r.report("box")), &box); err != nil {
		t.Fatalf("%v: exit %d %s", err, status, r.stderr.String())
	}
	if env := strings.Join(box.Env, "\n"); strings.Contains(env, "canary") || strings.Contains(env, "NOTIFY") || !strings.Contains(env, "LANG=C.UTF-8") {
		t.Errorf("its environment:\n%s", env)
	}
	if strings.Join(box.Args[1:], " ") != "run --control" {
		t.Errorf("its command line: %q", box.Args)
	}
	if env := strings.Join(box.Start.Env, "\n"); !strings.Contains(env, "SECRET_KEY=canary") || strings.Contains(env, "NOTIFY") {
		t.Errorf("handed over:\n%s", env)
	}
	if status != 7 || box.Start.Dir != "/" || fmt.Sprintf("%q", box.Start.Argv) != `["sh" "-c" "exit 7" "two words"]` {
		t.Errorf("exit %d, started %q in %s", status, box.Start.Argv, box.Start.Dir)
	}
}

// 75 is a plain command's way to ask for another start, of itself alone.
func TestAPlainCommandStartsAgain(t *testing.T) {
	r := start(t, world{args: []string{"--plain", "--", "sh", "-c", "echo x >>/out/tries; [ $(wc -l </out/tries) = 3 ] && exit 7; exit 75"}})
	if got := r.status(t); got != 7 || r.report("tries") != "x\nx\nx\n" || r.starts() != 1 {
		t.Errorf("exit %d after %q and %d workers: %s", got, r.report("tries"), r.starts(), r.stderr.String())
	}
}

func TestOrphanStorm(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		r := start(t, world{vars: "OMB_BOX_FAKE=storm", child: child, args: []string{"sh", "-c", "while [ ! -e /out/go ]; do sleep 0.01; done; exit 7"}})
		r.worker(t)
		pid := r.supervisor(t)
		r.await(t, "the end of the storm", func() bool { return len(descendants(pid)) == 3 && zombies(pid) == 0 }) // worker, sh, sleep
		os.WriteFile(filepath.Join(r.out, "go"), nil, 0o644)
		if got := r.status(t); got != 7 {
			t.Errorf("exit %d: %s", got, r.stderr.String())
		}
	})
}

func zombies(pid int) (n int) {
	for _, p := range descendants(pid) {
		if strings.Contains(read(fmt.Sprintf("/proc/%d/status", p)), "State:\tZ") {
			n++
		}
	}
	return n
}

func TestNothingSurvivesWhereWeAreNotPID1(t *testing.T) {
	r := start(t, world{child: true, args: []string{"--plain", "--", "sh", "-c", "setsid sleep 300 & setsid sleep 301 & exit 5"}})
	if got := r.status(t); got != 5 {
		t.Errorf("exit %d: %s", got, r.stderr.String())
	}
	if left := r.report("left"); strings.Contains("\n"+left, "\nsleep") || !strings.Contains("\n"+left, "\nsh -c") {
		t.Errorf("left: %s", left)
	}
}

// From the moment when the second image catches signals, which is when its
// name is no longer "exe".
func TestStopAtAnyMomentIsNeverExit2(t *testing.T) {
	for i := range 20 {
		r := start(t, world{child: i%2 == 1})
		pid := 0
		r.await(t, "the second image", func() bool {
			pid = r.supervisor(t)
			return strings.Contains(read(fmt.Sprintf("/proc/%d/cmdline", pid)), "--resume=") && read(fmt.Sprintf("/proc/%d/comm", pid)) == "botbox-supervis\n"
		})
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		send(t, pid, syscall.SIGTERM)
		if got := r.status(t); got != 0 {
			t.Errorf("run %d: exit %d: %s", i, got, r.stderr.String())
		}
	}
}

// The first image is held in its first step by a FIFO in place of /etc/passwd.
func TestStopBeforeTheReexecStartsNothing(t *testing.T) {
	for _, child := range []bool{false, true} {
		r := start(t, world{child: child, setup: `rm "$W/r/etc/passwd" && mkfifo "$W/r/etc/passwd"`})
		pid := r.supervisor(t)
		send(t, pid, syscall.SIGTERM)
		passwd := read("/etc/passwd")
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/etc/passwd", pid), []byte(passwd), 0); err != nil {
			t.Fatal(err)
		}
		if got := r.status(t); got != 143 || r.starts() != 0 {
			t.Errorf("child %t: exit %d after %d workers: %s", child, got, r.starts(), r.stderr.String())
		}
	}
}

func TestDrain(t *testing.T) {
	for _, c := range []struct {
		name, mode string
		args       []string
		stops      int
		want       int
		under      time.Duration
	}{
		{"serve", "", nil, 1, 0, 4 * time.Second},
		{"box", "", []string{"sleep", "100"}, 1, 143, 4 * time.Second},
		{"plain", "", []string{"--plain", "--", "sh", "-c", "trap 'exit 9' TERM; while :; do sleep 0.05; done"}, 1, 9, 4 * time.Second},
		{"stubborn worker", "no-drain", nil, 1, 137, 8 * time.Second},
		{"second stop", "no-drain", nil, 2, 137, 2 * time.Second},
		{"stubborn command", "", []string{"--plain", "--", "sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"}, 1, 137, 8 * time.Second},
	} {
		bothWays(t, func(t *testing.T, child bool) {
			r := start(t, world{child: child, vars: "OMB_BOX_FAKE=" + c.mode, args: c.args})
			r.worker(t)
			pid := r.supervisor(t)
			count := min(1+len(c.args), 2)
			r.await(t, "the command", func() bool { return len(descendants(pid)) >= count })
			time.Sleep(100 * time.Millisecond) // for the shell's trap
			began := time.Now()
			for i := range c.stops {
				send(t, pid, []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}[i])
				time.Sleep(50 * time.Millisecond)
			}
			if got := r.status(t); got != c.want || time.Since(began) > c.under {
				t.Errorf("%s: exit %d after %v, want %d: %s", c.name, got, time.Since(began), c.want, r.stderr.String())
			}
			if c.stops == 1 && r.report("drain") != "3.2s" {
				t.Errorf("%s: the worker was given %q", c.name, r.report("drain"))
			}
		})
	}
}

// A stop that nobody would undo, a terminal that has gone, and what a write to
// a closed pipe sends: it stays at work, and its pings are answered.
func TestSignalsThatAreNoStop(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		r := start(t, world{child: child, vars: "WATCHDOG_USEC=200000",
			args: []string{"--plain", "--", "sh", "-c", "trap 'exit 42' USR1; trap 'echo hup >> /out/hup' HUP; echo up > /out/up; while :; do sleep 0.05; done"}})
		r.await(t, "the command", func() bool { return r.report("up") != "" })
		pid := r.supervisor(t)
		for _, sig := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPIPE, syscall.SIGCHLD, syscall.SIGHUP} {
			for range 3 {
				send(t, pid, sig)
			}
			time.Sleep(20 * time.Millisecond)
			if s := read(fmt.Sprintf("/proc/%d/status", pid)); !strings.Contains(s, "State:\tS") && !strings.Contains(s, "State:\tR") {
				t.Errorf("%v: it is not at work:\n%s", sig, s)
			}
		}
		r.await(t, "the hang-up, which is the command's", func() bool { return r.report("hup") != "" })
		// Three pings of 100 ms without an answer would be the worker's end.
		time.Sleep(600 * time.Millisecond)
		if r.starts() != 1 {
			t.Errorf("the worker was replaced: %s", r.stderr.String())
		}
		send(t, pid, syscall.SIGUSR1)
		if got := r.status(t); got != 42 {
			t.Errorf("exit %d: %s", got, r.stderr.String())
		}
	})
}

// Only the supervisor speaks to the service manager: with NotifyAccess=main a
// child's word would make the unit fail.
func TestServiceManagerHearsReadyAndStopping(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		needRoot(t)
		// The socket's folder comes first, for its name goes into the environment.
		dir, err := os.MkdirTemp("", "nt")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/s", Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if raw, err := conn.SyscallConn(); err != nil || raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) }) != nil || err != nil {
			t.Fatal(err)
		}
		r := start(t, world{child: child, vars: "WATCHDOG_USEC=200000 NOTIFY_SOCKET=" + dir + "/s", setup: fmt.Sprintf("mkdir -p %[2]q && mount --bind %[1]s %[2]q", dir, "$W/r"+dir)})
		pid := r.supervisor(t)
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		hear := func() string {
			buf, oob := make([]byte, 100), make([]byte, 100)
			n, oobn, _, _, err := conn.ReadMsgUnix(buf, oob)
			if err != nil {
				t.Fatalf("%v; %s", err, r.stderr.String())
			}
			messages, err := unix.ParseSocketControlMessage(oob[:oobn])
			if err != nil || len(messages) != 1 {
				t.Fatalf("%d messages, %v", len(messages), err)
			}
			if from, err := unix.ParseUnixCredentials(&messages[0]); err != nil || int(from.Pid) != pid {
				t.Errorf("%s is of process %v, the supervisor is %d, %v", buf[:n], from, pid, err)
			}
			return string(buf[:n])
		}
		for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1", "STOPPING=1"} {
			if want == "STOPPING=1" {
				send(t, pid, syscall.SIGTERM)
			}
			got := hear()
			for want == "STOPPING=1" && got == "WATCHDOG=1" { // one on its way
				got = hear()
			}
			if got != want {
				t.Fatalf("heard %q, want %s; %s", got, want, r.stderr.String())
			}
		}
		for _, name := range r.worker(t).Env {
			if strings.HasPrefix(name, "NOTIFY_SOCKET") || strings.HasPrefix(name, "WATCHDOG_") {
				t.Errorf("the worker has %s", name)
			}
		}
		r.status(t)
	})
}

func TestJournalStreamGetsPriorities(t *testing.T) {
	needRoot(t)
	for _, journal := range []bool{true, false} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		unix.Fstat(int(write.Fd()), &st)
		ino := st.Ino
		if !journal {
			ino++
		}
		r := startTo(t, write, world{args: []string{"--odd"}, vars: fmt.Sprintf("JOURNAL_STREAM=%d:%d", st.Dev, ino)})
		write.Close()
		text := make([]byte, 1000)
		n, _ := read.Read(text)
		r.status(t)
		if got := strings.HasPrefix(string(text[:n]), "<3>botbox-supervisor: "); got != journal || n == 0 {
			t.Errorf("journal %t: %q", journal, text[:n])
		}
		read.Close()
	}
}
