package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/rig"
)

// Faults that users of other sandboxes have reported in public, or that were
// measured on them: each must not be ours. A test is named by the report.
// bugs_table_test.go lists them all, with the tests that are about more than one.

// syscaller compiles the program that makes calls, at a place in its own folder.
func (p *place) syscaller() string {
	p.t.Helper()
	at := filepath.Join(p.top, "syscaller")
	if err := rig.Compile(at, "./testbed/syscaller", "rig"); err != nil {
		p.t.Fatal(err)
	}
	return at
}

// The filter in a box as users get it. Without it, the kernel itself answers:
// the control.
func TestBug_TheFilter(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		syscaller := p.syscaller()
		box := rig.Run(t, p.botbox(nil, with(run, "--ro", syscaller, "--", syscaller, "calls")...))
		bare := rig.Run(t, rig.Command(t, p.work, p.env, syscaller, "calls"))
		for _, c := range []struct {
			report, call string
			boxed        unix.Errno
		}{
			{"moby 42680, sandlock 240", "clone3", unix.ENOSYS},
			{"go-microvm 76", "io_uring_setup", unix.ENOSYS},
			{"codex 10814", "io_uring_enter", unix.ENOSYS},
			{"codex 10814", "io_uring_register", unix.ENOSYS},
			{"flatpak 2782, snapd 6643", "TIOCSTI", unix.EPERM},
			{"CVE-2019-10063", "TIOCSTI+1<<32", unix.EPERM},
			{"CVE-2019-7303", "TIOCSTI+1<<63", unix.EPERM},
			{"snapd 12849, CVE-2023-28100", "TIOCLINUX", unix.EPERM},
			{"snapd 12849", "TIOCLINUX+1<<32", unix.EPERM},
			{"mxc 936", "socket vsock", unix.EAFNOSUPPORT},
			{"mxc 936", "socket alg", unix.EAFNOSUPPORT},
			{"mxc 936", "socket packet", unix.EAFNOSUPPORT},
			{"mxc 936", "socket xdp", unix.EAFNOSUPPORT},
			{"srt (nested namespaces)", "unshare user", unix.EPERM},
		} {
			want := fmt.Sprintf("%s %d\n", c.call, int(c.boxed))
			if !strings.Contains(box.Stdout, want) || strings.Contains(bare.Stdout, want) || !strings.Contains(bare.Stdout, c.call+" ") {
				t.Errorf("%s: no %q in a box:\n%s%s\nwithout:\n%s", c.report, want, box.Stdout, box.Stderr, bare.Stdout)
			}
		}
		for _, same := range []string{fmt.Sprintln("TCGETS", int(unix.EBADF)), fmt.Sprintln("socket unix", int(unix.EINVAL))} {
			if !strings.Contains(box.Stdout, same) || !strings.Contains(bare.Stdout, same) {
				t.Errorf("positive control: %q is not what both kernels say", same)
			}
		}
	})
}

// A filter that allows int 0x80 or x32 has no effect at all: the numbers there
// are other calls.
func TestBug_seccompForeignModes(t *testing.T) {
	p := newPlace(t)
	syscaller := p.syscaller()
	for _, mode := range []string{"i386", "x32"} {
		bare := rig.Run(t, rig.Command(t, p.work, p.env, syscaller, "foreign", mode))
		if strings.Contains(bare.Stdout, "on this processor") {
			t.Skip(bare.Stdout)
		}
		if bare.Code != 0 || !strings.HasPrefix(bare.Stdout, mode+" ") {
			t.Errorf("positive control: %s without a box: %+v", mode, bare)
		}
		out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--ro", syscaller, "--", syscaller, "foreign", mode))
		if out.Code != 128+31 || out.Stdout != "" {
			t.Errorf("%s in a box: %+v, want SIGSYS", mode, out)
		}
	}
}

// The session keyring of whoever asks is not namespaced.
func TestBug_flatpak299_runc453_SessionKeyring(t *testing.T) {
	p := newPlace(t)
	syscaller := p.syscaller()
	with := func(command ...string) rig.Output {
		return rig.Run(t, rig.Command(t, p.work, p.env, append([]string{syscaller, "with-key"}, command...)...))
	}
	if out := with(syscaller, "find-key"); out.Stdout != "search 0\nclear 0\n" {
		t.Fatalf("positive control: the key without a box: %+v", out)
	}
	out := with(filepath.Join(p.bin, "botbox"), "run", "--standalone", "--ro", syscaller, "--", syscaller, "find-key")
	if out.Stdout != "search 1\nclear 1\n" {
		t.Errorf("in a box: %+v", out)
	}
}

// Refusing unix sockets breaks tokio, asyncio, MSBuild, Playwright and Chrome.
func TestBug_claudecode44180_codex2309_UnixSocketsWork(t *testing.T) {
	p := newPlace(t)
	syscaller := p.syscaller()
	out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--ro", syscaller, "--", syscaller, "unix"))
	if out.Stdout != "works\n" {
		t.Errorf("%+v", out)
	}
}

// The wish for a nested sandbox gets a clear refusal, and the program goes on.
func TestBug_bubblewrap764_NestedSandbox(t *testing.T) {
	p := newPlace(t)
	out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--", "sh", "-c", "unshare -Ur true; echo $?; bwrap --ro-bind / / true; echo $?"))
	if out.Stdout != "1\n1\n" || !strings.Contains(out.Stderr, "Operation not permitted") {
		t.Errorf("%+v", out)
	}
	if out := rig.Run(t, rig.Command(t, p.work, p.env, "unshare", "-Ur", "true")); out.Code != 0 {
		t.Errorf("positive control, without a box: %+v", out)
	}
}

// A /proc with hidepid=invisible hides bubblewrap's own processes from it; no
// box may hang or stay because of that.
func TestBug_bubblewrap198_HiddenProcesses(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, to hide processes in a namespace of its own")
	}
	p := newPlace(t)
	script := `mount -o remount,hidepid=invisible /proc && cd ` + p.work + ` && setpriv --reuid maus --regid maus --clear-groups sh -c '
		[ -e /proc/1/stat ] && echo "positive control: PID 1 is not hidden"
		for i in 1 2 3 4 5; do ` + filepath.Join(p.bin, "botbox") + ` run --standalone -- echo ran; done'
		for try in 1 2 3 4 5 6 7 8 9 10; do
			n=$(ls -l /proc/[0-9]*/exe | grep -c '/bwrap$'); [ "$n" = 0 ] && break; sleep 0.1
		done; echo $n`
	cmd := exec.Command("unshare", "-pfm", "--mount-proc", "--kill-child", "sh", "-c", script)
	cmd.Env = p.env
	if out := rig.Run(t, cmd); out.Stdout != "ran\nran\nran\nran\nran\n0\n" {
		t.Errorf("%+v", out)
	}
}

// Every file system in memory that a box can write has an end.
func TestBug_nsjail71_bubblewrap375_TmpfsSizes(t *testing.T) {
	p := newPlace(t)
	out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--", "cat", "/proc/self/mountinfo"))
	seen := 0
	for l := range strings.Lines(out.Stdout) {
		of, fs, _ := strings.Cut(l, " - ")
		mount, super := strings.Fields(of), strings.Fields(fs)
		// What is below another's root is a folder of the machine's, which may
		// itself have its /tmp in memory.
		if len(mount) < 6 || len(super) < 3 || super[0] != "tmpfs" || mount[3] != "/" || strings.HasPrefix(mount[5], "ro") {
			continue
		}
		seen++
		if !strings.Contains(super[2], "size=") {
			t.Errorf("%s can be filled without end: %s", mount[4], super[2])
		}
	}
	if seen < 4 {
		t.Errorf("positive control: only %d are writable:\n%s", seen, out.Stdout)
	}
	full := rig.Run(t, p.botbox(nil, "run", "--standalone", "--tmp-size", "4M", "--", "sh", "-c", "cat /dev/zero >/tmp/x"))
	if full.Code == 0 || !strings.Contains(full.Stderr, "No space left") {
		t.Errorf("a full /tmp: %.500s, %d", full.Stderr, full.Code)
	}
}

// Orphans that nobody waits for use up a container's process limit overnight.
// A box's PID 1 buries them, and exit statuses are not mixed up by it.
func TestBug_bubblewrap697_subfloor358_Zombies(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		script := fmt.Sprintf(`
			i=0; while [ $i -lt %d ]; do (true & true) ; i=$((i+1)); done
			sh -c 'exit 5'; echo $?
			for try in 1 2 3 4 5 6 7 8 9 10; do
				n=$(cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z ')
				[ "$n" = 0 ] && break; sleep 0.2
			done
			echo zombies $n; exit 9`, scaled(1000, 200))
		out := rig.Run(t, p.botbox(nil, with(run, "--", "sh", "-c", script)...))
		if out.Code != 9 || out.Stdout != "5\nzombies 0\n" {
			t.Errorf("%+v", out)
		}
	})
}

// A worker is closed to other programs of its own user.
func TestBug_inflexa88_bobbit225_EnvironmentOfTheWorker(t *testing.T) {
	p := newPlace(t)
	worker := p.serve("CANARY=canary")
	_, out := start(t, rig.Command(t, "/", []string{"CANARY=canary"}, "/bin/sh", "-c", "echo $$; exec sleep 300"))
	open := line(t, out)
	read := func(pid string) rig.Output {
		return rig.Run(t, rig.Command(t, "/", p.env, "cat", "/proc/"+pid+"/environ"))
	}
	rig.Eventually(t, 5*time.Second, "positive control: another program's environment is read", func() bool {
		return strings.Contains(read(open).Stdout, "canary") // not while it execs
	})
	if got := read(strconv.Itoa(worker.Process.Pid)); got.Code == 0 || got.Stdout != "" {
		t.Errorf("the worker's environment: %+v", got)
	}
}

// What stands in a command line, every user of the machine can read.
func TestBug_qwencode12269_SecretsInCommandLines(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		m := mark(t)
		_, out := start(t, p.botbox([]string{"ANTHROPIC_API_KEY=sk-canary-" + m, "NOTES_TOKEN=notes-canary-" + m}, with(run, "--env", "NOTES_TOKEN", "--",
			"sh", "-c", "echo $ANTHROPIC_BASE_URL $NOTES_TOKEN; sleep 300; : seen-"+m)...))
		words := strings.Fields(line(t, out))
		if len(words) != 2 || words[1] != "notes-canary-"+m {
			t.Fatalf("positive control: the box has %q", words)
		}
		_, token, _ := strings.Cut(words[0], "/b/")
		token, _, _ = strings.Cut(token, "/")
		if len(marked(t, "seen-"+m)) == 0 || len(token) < 20 {
			t.Fatalf("positive control: the box's processes are not seen, or it has no token: %q", words[0])
		}
		for _, secret := range []string{"canary-" + m, token} {
			if pids := marked(t, secret); len(pids) != 0 {
				t.Errorf("a secret is in the command line of %v", pids)
			}
		}
	})
}

// What a login shell in a box sees is what the command sees.
func TestBug_sbx53_LoginShells(t *testing.T) {
	p := newPlace(t)
	run := []string{"run", "--standalone", "--"}
	plain := rig.Run(t, p.botbox(nil, append(run, "env")...))
	login := rig.Run(t, p.botbox(nil, append(run, "bash", "-lc", "env")...))
	seen := 0
	for l := range strings.Lines(plain.Stdout) {
		if strings.Contains(l, "127.0.0.1") || strings.HasPrefix(l, "BOTBOX") || strings.HasPrefix(l, "HOME") {
			seen++
			if !strings.Contains("\n"+login.Stdout, "\n"+l) {
				t.Errorf("a login shell lacks %s", l)
			}
		}
	}
	if seen < 8 {
		t.Errorf("positive control: only %d of our names in\n%s", seen, plain.Stdout)
	}
}

// A key that was taken away is in no later box, nor is anything that stands
// for it.
func TestBug_desktopfeedback114_StaleKeys(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		env := with(run, "--", "sh", "-c", "env | grep -c ANTHROPIC")
		if out := rig.Run(t, p.botbox([]string{"ANTHROPIC_API_KEY=sk-canary"}, env...)); out.Stdout == "0\n" {
			t.Fatalf("positive control: no key: %+v", out)
		}
		if out := rig.Run(t, p.botbox(nil, env...)); out.Stdout != "0\n" {
			t.Errorf("%+v", out)
		}
	})
}

// Nothing that a box starts may change the host's network, also when it and
// its keeper are killed.
func TestBug_boundary98_HostNetwork(t *testing.T) {
	p := newPlace(t)
	before := hostNetwork(t)
	for _, run := range [][]string{{"run", "--standalone"}, {"run"}} {
		m := mark(t)
		worker := p.serve()
		cmd, out := start(t, p.botbox(nil, append(run, "--", "sh", "-c", "cut -d: -f1 /proc/net/dev | tail -n +3; sleep 300; : "+m)...))
		if got := line(t, out); got != "lo" {
			t.Errorf("positive control: the box has %q", got)
		}
		if during := hostNetwork(t); during != before {
			t.Errorf("while a box runs:\n%s\nbefore:\n%s", during, before)
		}
		cmd.Process.Kill()
		worker.Process.Kill()
		cmd.Wait()
		worker.Wait()
		if after := hostNetwork(t); after != before {
			t.Errorf("after kill -9:\n%s\nbefore:\n%s", after, before)
		}
		os.Remove(filepath.Join(p.run, "api.sock"))
	}
}

// hostNetwork gives what a sandbox could have changed of the host's network,
// without the counters of traffic.
func hostNetwork(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	links, err := filepath.Glob("/sys/class/net/*")
	if err != nil || len(links) == 0 {
		t.Fatalf("no interface is seen: %v", err)
	}
	fmt.Fprintln(&b, links)
	settings, _ := filepath.Glob("/proc/sys/net/ipv4/conf/*/[r-]*")
	for _, name := range append(settings, "/proc/net/route", "/proc/net/ipv6_route", "/proc/net/if_inet6", "/proc/net/ip_tables_names",
		"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/ip_unprivileged_port_start") {
		text, _ := os.ReadFile(name) // some are not on every machine
		if name == "/proc/net/route" || name == "/proc/net/ipv6_route" {
			text = withoutCounters(text)
		}
		fmt.Fprintf(&b, "%s %s\n", name, text)
	}
	return b.String()
}

// withoutCounters keeps where routes lead: their use is counted in between.
func withoutCounters(routes []byte) []byte {
	var b bytes.Buffer
	for l := range strings.Lines(string(routes)) {
		words := strings.Fields(l)
		fmt.Fprintln(&b, words[:min(3, len(words))], words[max(0, len(words)-1):])
	}
	return b.Bytes()
}
