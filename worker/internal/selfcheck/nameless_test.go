package selfcheck

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/report"
)

// namelessEnv makes this test's binary a program that nobody may set a host
// name in, as in a container of podman's, and then the program that it names.
const namelessEnv = "SELFCHECK_TEST_NAMELESS"

func withoutHostNames(words []string) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_SETHOSTNAME},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread() // exec keeps the filter of the thread that calls it
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return errno
	}
	return syscall.Exec(words[0], words, []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent"})
}

// Where a filter around us refuses a host name the row says so, and passes;
// the namespace that would have held it is looked at all the same.
func TestWithoutAHostName(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	entry := filepath.Join(rig.Dir(t), "entry")
	if err := os.WriteFile(entry, self, 0o755); err != nil {
		t.Fatal(err)
	}
	for mutation, want := range map[string]string{"": "", "share-uts": "P07"} {
		cmd := exec.Command(entry, filepath.Join(built(t), "botbox"), "check", "--json", "--profile", "full", "--mutate", mutation)
		cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", []string{namelessEnv + "=1"}, rig.Ordinary(t)
		var said strings.Builder
		cmd.Stderr = &said
		out, _ := cmd.Output()
		var r report.Report
		if err := json.Unmarshal(out, &r); err != nil || strings.Join(r.Failed, " ") != want {
			t.Fatalf("%q: failed %v, want %q; %v, %s", mutation, r.Failed, want, err, said.String())
		}
		for _, res := range r.Results {
			if res.ID == "P09" && !strings.Contains(res.Why, "no box have a name of its own") {
				t.Errorf("control: a name could be set: %+v", res)
			}
		}
	}
}
