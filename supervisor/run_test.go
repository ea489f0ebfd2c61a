package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// built holds the supervisor and, under the worker's name, the fake worker.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sv")
	if err != nil {
		panic(err)
	}
	os.Chmod(dir, 0o755)
	built = dir
	build(".", "botbox-supervisor", "CGO_ENABLED=0")
	build("../worker/internal/control/testdata/fakeworker", "botbox", "CGO_ENABLED=0")
	code := m.Run()
	os.RemoveAll(dir)
	os.RemoveAll(mutant.dir)
	rig.Remove()
	os.Exit(code)
}

func build(pkg, name string, env ...string) {
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", filepath.Join(built, name), pkg)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build %s: %v\n%s", pkg, err, out))
	}
}

// private makes a root of its own over the machine's, with its own /proc, and
// runs the supervisor in it: as PID 1, or below a shell that is.
const private = `set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 t "$W"
mkdir "$W/u" "$W/w" "$W/r"
mount -t overlay o -o lowerdir=/,upperdir="$W/u",workdir="$W/w" "$W/r"
mount -t proc proc "$W/r/proc"
mount --rbind /dev "$W/r/dev"
mkdir "$W/r/bb" "$W/r/out"
mount --bind "$BIN" "$W/r/bb"
mount --bind "$OUT" "$W/r/out"
eval "$SETUP"
cd "$W/r"
if [ "$PID1" = 1 ]; then exec env -i $VARS $UNDER chroot . /bb/botbox-supervisor "$@"; fi
env -i $VARS $UNDER chroot . /bb/botbox-supervisor "$@" || status=$?
for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline; echo; done > "$OUT/left"
cat /proc/[0-9]*/comm > "$OUT/comms"
exit ${status:-0}
`

type world struct {
	args  []string
	vars  string   // NAME=value of the container, separated by blanks
	setup string   // shell, in $W/r the private root
	under string   // a program in front of it, with its flags
	child bool     // below a shell, not PID 1
	bin   string   // folder of the programs, the built one by default
	tty   *os.File // the terminal that it is started on, if any
}

type running struct {
	*exec.Cmd
	out    string // the fake worker's reports
	bin    string // the programs of a realWorld
	stdout output
	stderr output
}

// output can be read while the process still writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func start(t *testing.T, w world) *running { t.Helper(); return startTo(t, nil, w) }

// startTo starts with another stderr than the collected one.
func startTo(t *testing.T, stderr *os.File, w world) *running {
	t.Helper()
	needRoot(t)
	r := &running{out: t.TempDir()}
	os.Chmod(r.out, 0o777)
	bin, pid1 := built, "1"
	if w.bin != "" {
		bin = w.bin
	}
	if w.child {
		pid1 = "0"
	}
	r.Cmd = exec.Command("unshare", append([]string{"-pfm", "--mount-proc", "--kill-child", "sh", "-c", private, "sh"}, w.args...)...)
	r.Env = []string{"PATH=" + os.Getenv("PATH"), "W=" + t.TempDir(), "BIN=" + bin, "OUT=" + r.out, "SETUP=" + w.setup,
		"PID1=" + pid1, "UNDER=" + w.under, "VARS=PATH=/usr/sbin:/usr/bin:/sbin:/bin " + w.vars}
	r.Stdout, r.Stderr = &r.stdout, &r.stderr
	if stderr != nil {
		r.Stderr = stderr
	}
	if w.tty != nil {
		r.Stdin, r.Stdout, r.Stderr = w.tty, w.tty, w.tty
		r.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	r.WaitDelay = 5 * time.Second
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Process.Kill(); r.Wait() })
	return r
}

// needRoot skips where namespaces cannot be had, and fails where they must.
func needRoot(t testing.TB) {
	t.Helper()
	out, err := exec.Command("unshare", "-pfm", "--mount-proc", "--kill-child", "true").CombinedOutput()
	if os.Geteuid() == 0 && err == nil && strings.Contains(read("/etc/passwd"), "\nmaus:") {
		return
	}
	if os.Getenv("BOTBOX_MUST_RUN") == "1" {
		t.Fatalf("this test must run: %v %s", err, out)
	}
	t.Skip("needs root, namespaces and the account maus")
}

func read(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// status waits for the end, within a bound that only a hang reaches.
func (r *running) status(t *testing.T) int {
	t.Helper()
	timer := time.AfterFunc(60*time.Second, func() { r.Process.Kill() })
	defer timer.Stop()
	r.Wait()
	ws := r.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// await polls until done says so.
func (r *running) await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("%s never came; stderr:\n%s", what, r.stderr.String())
}

func (r *running) report(name string) string { return read(filepath.Join(r.out, name)) }

// starts counts how often a worker was started.
func (r *running) starts() int {
	found, _ := filepath.Glob(filepath.Join(r.out, "pid.*"))
	return len(found)
}

// supervisor finds the process, as the machine numbers it, once it is past its
// first lines: then its umask is 077.
func (r *running) supervisor(t *testing.T) int {
	t.Helper()
	pid := 0
	r.await(t, "the supervisor", func() bool {
		for _, p := range descendants(r.Process.Pid) {
			s := read(fmt.Sprintf("/proc/%d/status", p))
			argv := read(fmt.Sprintf("/proc/%d/cmdline", p))
			if strings.Contains(s, "Umask:\t0077") && strings.Contains(argv, "botbox-supervisor\x00") {
				pid = p // the first: a child of it that has not executed yet looks alike
				return true
			}
		}
		return false
	})
	return pid
}

// send signals a process that was found. One that was not is 0, and signal 15
// to that is one to the tests themselves and to who runs them.
func send(t *testing.T, pid int, sig syscall.Signal) error {
	t.Helper()
	if pid <= 1 {
		t.Errorf("there is no process to send %v to", sig)
		return syscall.ESRCH
	}
	return syscall.Kill(pid, sig)
}

func descendants(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		for _, f := range strings.Fields(read(task)) {
			var child int
			fmt.Sscan(f, &child)
			all = append(append(all, child), descendants(child)...)
		}
	}
	return all
}
