package posture

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A program that its user cannot read is not dumpable from its first
// instruction on; that is how a process without the flag comes about here.
func TestDumpable(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("BOTBOX_MUST_RUN") == "1" {
			t.Fatal("this test must run: it needs root")
		}
		t.Skip("needs root")
	}
	dir, err := os.MkdirTemp("", "dumpable")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]bool{0o755: true, 0o711: false} {
		for _, uid := range []uint32{0, 4711} { // root reads everything, so only of the other one is it unreadable
			program := fmt.Sprintf("%s/%o.%d", dir, mode, uid)
			if err := os.WriteFile(program, sleep, mode); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(program, "60")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid)); strings.HasPrefix(string(line), program) {
					break
				}
			}
			p, err := Collect(cmd.Process.Pid)
			if err != nil || p.Dumpable != (want || uid == 0) {
				t.Errorf("%o as %d: %t %v", mode, uid, p.Dumpable, err)
			}
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
	own, err := Collect(os.Getpid())
	if flag, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || own.Dumpable != (flag == 1) {
		t.Errorf("ourselves: %t %v", own.Dumpable, err)
	}
	if all, err := Threads(os.Getpid()); err != nil {
		t.Error(err)
	} else {
		for _, s := range all {
			if diff := DiffStatus(own.Status, s); diff != nil {
				t.Errorf("a thread of ours is left changed: %v", diff)
			}
		}
	}
}

func TestParseMounts(t *testing.T) {
	got := parseMounts("22 27 0:21 / /proc rw,relatime shared:5 master:2 - proc proc rw,hidepid=invisible\n" +
		"40 22 0:21 / /proc ro - proc none rw\nnonsense\n41 22 0:50 /sub /odd\\040place rw - ext4 /dev/x ro,a=b\n")
	want := map[string]string{"/proc": "proc proc / rw,relatime rw,hidepid=invisible shared master", "/proc'": "proc none / ro rw", "/odd\\040place": "ext4 /dev/x /sub rw ro,a=b"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q", got)
	}
	limits := parseLimits("Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max cpu time              unlimited            unlimited            seconds   \nMax nice priority         0                    3                    \n")
	if want := map[string]string{"Max cpu time": "unlimited unlimited", "Max nice priority": "0 3"}; fmt.Sprint(limits) != fmt.Sprint(want) {
		t.Errorf("%q", limits)
	}
}
