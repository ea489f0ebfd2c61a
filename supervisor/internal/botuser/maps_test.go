package botuser

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
)

// holder starts a sleep in a user namespace, which uid makes.
func holder(t *testing.T, uid uint32) int {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	if uid != 0 {
		// setpriv becomes the user, and unshare its namespace's owner.
		cmd = exec.Command("setpriv", "--reuid", fmt.Sprint(uid), "--regid", fmt.Sprint(uid), "--clear-groups", "unshare", "-U", "sleep", "60")
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(b), "sleep\x00") {
			return cmd.Process.Pid
		}
	}
}

// Only a namespace that the account itself made is given a map, and the thread
// that wrote it takes its rights along.
func TestWhoseNamespaceGetsAMap(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("BOTBOX_MUST_RUN") == "1" {
			t.Fatal("this test must run, as root")
		}
		t.Skip("needs root")
	}
	before := section(whole(t), "CapEff:")
	account := privdrop.Account{UID: 4242, GID: 4242}
	for _, c := range []struct {
		what  string
		owner uint32
		says  string
	}{
		{"root's", 0, "not the account's"},
		{"another user's", 4243, "not the account's"},
		{"the account's", 4242, ""},
	} {
		pid := holder(t, c.owner)
		err := writeMaps(os.Getpid(), pid, account, 300007)
		if c.says == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.what, err)
		}
		var no kernelRefused
		if errors.As(err, &no) {
			t.Errorf("%s: no lie, but %v", c.what, err)
		}
		now, _ := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", pid))
		if want := "0 4242 1 4242 300007 1"; (strings.Join(strings.Fields(string(now)), " ") == want) != (err == nil) {
			t.Errorf("%s has the map %q", c.what, now)
		}
		if err == nil {
			if again := writeMaps(os.Getpid(), pid, account, 300008); again == nil || !strings.Contains(again.Error(), "already") {
				t.Errorf("a second map: %v", again)
			}
			if other := writeMaps(os.Getpid()+1, pid, account, 300008); other == nil || !strings.Contains(other.Error(), "no child") {
				t.Errorf("another's child: %v", other)
			}
		}
	}
	if kept := borrowed(t, before); kept != "" {
		t.Errorf("a thread keeps the borrowed user:\n%s", kept)
	}
}

// whole is the status of the test's process.
func whole(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func section(status, name string) string {
	_, rest, _ := strings.Cut(status, "\n"+name)
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

// borrowed gives the status of a thread that is not root's.
func borrowed(t *testing.T, before string) string {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if err == nil && (!strings.Contains(string(text), "\nUid:\t0\t0\t0\t0\n") || section(string(text), "CapEff:") != before) {
			return string(text)
		}
	}
	return ""
}
