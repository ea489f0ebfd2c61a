// Package vm_test boots a virtual machine in which botbox-supervisor is the
// first process, or the child of another init, and reads its checks from the
// serial port. This is where limits of cgroup v2, Landlock, AppArmor and
// AF_VSOCK are tried for real, whatever kernel the tests run on. The machine's
// host, at the other end of its vsock, is the test itself (testbed/vsockhost).
package vm_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/testbed/vsockhost"
)

func TestMain(m *testing.M) {
	code := m.Run()
	rig.Remove()
	os.Exit(code)
}

// bootWithin bounds one machine. Under emulation on a busy processor it takes
// ten times what it takes on a quiet one.
const bootWithin = 6 * time.Minute

// made gives the folder with a suite's kernel and root file system.
func made(t *testing.T, suite string) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		rig.Missing(t, "there is no recipe for a virtual machine of %s", runtime.GOARCH)
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		rig.Missing(t, "no QEMU (testbed/setup.sh test installs it): %v", err)
	}
	making.Lock() // two machines may be of one suite
	defer making.Unlock()
	cmd := exec.Command("/bin/sh", "make.sh", suite)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		rig.Missing(t, "make.sh: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// programs builds what goes into the machine.
func programs(t *testing.T) string {
	t.Helper()
	dir := rig.Programs(t)
	buildGuest.Do(func() {
		profile, err := os.ReadFile(filepath.Join(rig.Root(), "init/apparmor/bwrap"))
		guestFailed = errors.Join(err, os.WriteFile(filepath.Join(dir, "bwrap.profile"), profile, 0o644),
			rig.Compile(filepath.Join(dir, "guest"), "./testbed/vm/guest", rig.Build),
			rig.Compile(filepath.Join(dir, "standin"), "./testbed/standin", rig.Build))
	})
	if guestFailed != nil {
		t.Fatal(guestFailed)
	}
	return dir
}

var (
	making      sync.Mutex
	buildGuest  sync.Once
	guestFailed error
)

// console is what a machine printed.
type console struct {
	lines []string
	took  time.Duration
}

func (c console) String() string { return strings.Join(c.lines, "\n") }

// boot runs a machine to its end. It has no network and no device that leads
// out of it but the serial port and a vsock whose other end is this process,
// and what it writes on its disk is dropped.
func boot(t *testing.T, suite, course string, disks ...string) console {
	t.Helper()
	dir, work := made(t, suite), t.TempDir()
	ramdisk := filepath.Join(work, "initrd")
	packed, err := initrd(dir, programs(t))
	if err := errors.Join(err, os.WriteFile(ramdisk, packed, 0o600)); err != nil {
		t.Fatal(err)
	}
	host, err := vsockhost.Listen(filepath.Join(work, "vsock"))
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	ctx, cancel := context.WithTimeout(context.Background(), bootWithin)
	defer cancel()
	// Never KVM: what it does depends on the machine below.
	args := []string{"-accel", "tcg,thread=single", "-cpu", "max", "-m", "1024", "-smp", "1", "-M", "q35,memory-backend=memory",
		"-object", "memory-backend-memfd,id=memory,size=1024M,share=on",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-kernel", filepath.Join(dir, "vmlinuz"), "-initrd", ramdisk,
		"-append", "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off course=" + course,
		"-chardev", "socket,id=vsock,path=" + filepath.Join(work, "vsock"), "-device", "vhost-user-vsock-pci,chardev=vsock",
		"-device", "virtio-rng-pci"}
	for i, disk := range append([]string{filepath.Join(dir, "root.img")}, disks...) {
		args = append(args, "-drive", fmt.Sprintf("if=none,id=d%d,file=%s,format=raw,snapshot=on", i, disk), "-device", fmt.Sprintf("virtio-blk-pci,drive=d%d", i))
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	cmd.Stderr = os.Stderr
	serial, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var c console
	for lines := bufio.NewScanner(serial); lines.Scan(); {
		line := strings.TrimRight(lines.Text(), "\r")
		c.lines = append(c.lines, line)
		if _, key, ok := strings.Cut(line, "HOST ASKS "); ok {
			go tell(ctx, host, key, work, programs(t))
		}
	}
	err = cmd.Wait()
	c.took = time.Since(begin)
	if err != nil {
		t.Fatalf("%v after %v: %v\n%s", ctx.Err(), c.took, err, c)
	}
	t.Logf("%s: %v", read(filepath.Join(dir, "versions")), c.took)
	return c
}

func read(path string) string {
	b, _ := os.ReadFile(path)
	return strings.Join(strings.Fields(string(b)), " ")
}

// verdict is one check's line.
type verdict struct {
	name, seen string
	ok         bool
}

// The kernel's and other programs' lines may stand before one of ours.
var checkLine = regexp.MustCompile(`CHK (\S+) (ok|FAIL) ?(.*)`)

// verdicts reads the checks. A machine that stopped half-way has shown
// nothing: without the closing line, or with another number in it, it is an
// error.
func (c console) verdicts() (all []verdict, err error) {
	done := -1
	for _, line := range c.lines {
		if m := checkLine.FindStringSubmatch(line); m != nil {
			all = append(all, verdict{m[1], m[3], m[2] == "ok"})
		}
		if _, number, ok := strings.Cut(line, "DONE "); ok {
			done, _ = strconv.Atoi(number)
		}
	}
	if len(all) == 0 || done != len(all) {
		err = fmt.Errorf("%d checks, and the machine says %d", len(all), done)
	}
	return all, err
}

// checks makes a test of each check.
func (c console) checks(t *testing.T) {
	t.Helper()
	all, err := c.verdicts()
	if err != nil {
		t.Error(err)
	}
	for _, v := range all {
		t.Run(v.name, func(t *testing.T) {
			t.Log(v.seen)
			if !v.ok {
				t.Fail()
			}
		})
	}
	if t.Failed() {
		t.Logf("the console:\n%s", c)
	}
}

// has wants a line on the console.
func (c console) has(t *testing.T, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(c.String()) {
		t.Errorf("no %q on the console:\n%s", pattern, c)
	}
}

// drains wants the end within the drain's budget: boxes are asked and given
// time, and one that does not care is killed. The kernel says when its first
// process ended.
func (c console) drains(t *testing.T) {
	t.Helper()
	const budget, emulated = 4.0, 3.0
	m := regexp.MustCompile(`(?s)TERM AT ([0-9.]+)\n.*\[ *([0-9.]+)\] Kernel panic - not syncing: Attempted to kill init`).FindStringSubmatch(c.String())
	if m == nil {
		t.Errorf("no stop and end on the console:\n%s", c)
		return
	}
	from, _ := strconv.ParseFloat(m[1], 64)
	to, _ := strconv.ParseFloat(m[2], 64)
	t.Logf("from TERM to the end: %.1f s", to-from)
	if took := to - from; took < 1 || took > budget+emulated {
		t.Errorf("the drain took %.1f s of a budget of %.0f", took, budget)
	}
}

// TestFirstProcess: the supervisor is the machine's PID 1, on Linux 6.12 and
// on 6.1. When that ends, the kernel says with which status and stops the
// machine.
func TestFirstProcess(t *testing.T) {
	t.Parallel()
	for _, suite := range []string{"trixie", "bookworm"} {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			var disks []string
			if suite == "trixie" { // one turn is enough, and its disk is large
				disks = append(disks, engineDisk(t))
			}
			c := boot(t, suite, "pid1", disks...)
			c.checks(t)
			if disks != nil {
				c.has(t, `CHK engine-turn ok`)
			}
			// The worker names who was turned away, whoever let them come so far.
			const refused = `somebody who is not the host asked for the report over vsock .*cid=`
			for _, cid := range []string{"0", "1", "4"} {
				c.has(t, refused+cid)
			}
			if regexp.MustCompile(refused + `[23]`).MatchString(c.String()) {
				t.Errorf("the host was refused, or the machine's own number came in from outside:\n%s", c)
			}
			c.has(t, `box_id=hog.* end=oom`)
			c.has(t, `the last box was asked to end`)
			c.has(t, `Attempted to kill init! exitcode=0x00000000`)
			c.drains(t)
		})
	}
}

// TestChildOfAnotherInit: the supervisor is the child of another first process,
// as on a Fly machine, in every kind of cgroup that it may find itself in.
func TestChildOfAnotherInit(t *testing.T) {
	t.Parallel()
	c := boot(t, "trixie", "child")
	c.checks(t)
}

// A check that fails, and a machine that ends early, are both seen.
func TestTheConsoleIsRead(t *testing.T) {
	for _, c := range []struct {
		text string
		want string
		good bool
	}{
		{"CHK a ok\nCHK b FAIL why\nDONE 2", "[{a  true} {b why false}]", true},
		{"[ 1.0] noise CHK a ok seen it\nsomething CHK\nDONE 1", "[{a seen it true}]", true},
		{"CHK a ok", "[{a  true}]", false},
		{"CHK a ok\nDONE 2", "[{a  true}]", false},
		{"CHK a ok\nCHK b ok\nDONE 1", "[{a  true} {b  true}]", false},
		{"CHK a ok\nDONE", "[{a  true}]", false},
		{"DONE 0", "[]", false},
		{"", "[]", false},
	} {
		all, err := console{lines: strings.Split(c.text, "\n")}.verdicts()
		if fmt.Sprint(all) != c.want || (err == nil) != c.good {
			t.Errorf("%q: %v, %v", c.text, all, err)
		}
	}
}
