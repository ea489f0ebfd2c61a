package box

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/rig"
)

// stalled starts a bubblewrap that has cloned its first child and does not let
// it go on, and holds on to that child.
func stalled(t *testing.T) (outer *exec.Cmd, child *Process) {
	t.Helper()
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		rig.Missing(t, "%v", err)
	}
	never, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { never.Close(); write.Close() })
	status, told, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer status.Close()
	outer = exec.Command(bwrap, "--unshare-user", "--unshare-pid", "--userns-block-fd", "3", "--info-fd", "4", "--ro-bind", "/", "/", "--", EntryPath)
	outer.ExtraFiles = []*os.File{never, told}
	if err := outer.Start(); err != nil {
		t.Fatal(err)
	}
	told.Close()
	t.Cleanup(func() { outer.Process.Kill(); outer.Wait() })
	var line struct {
		Child int `json:"child-pid"`
	}
	if err := json.NewDecoder(status).Decode(&line); err != nil {
		rig.Missing(t, "bubblewrap builds nothing here: %v", err)
	}
	if child, err = openProcess(line.Child); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Signal(unix.SIGKILL); child.Close() })
	return outer, child
}

// over tells whether a process that may be another's child has ended.
func over(t *testing.T, p *Process, within time.Duration) bool {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	select {
	case err := <-ended:
		return err == nil
	case <-time.After(within):
		return false
	}
}

// bubblewrap 529, 633 and 700: a child whose bubblewrap was killed waits for
// ever. It is ended; one that waits for its turn is not.
func TestOrphansAreEnded(t *testing.T) {
	outer, child := stalled(t)
	endOrphans()
	if over(t, child, 200*time.Millisecond) {
		t.Fatal("a box that is being built was ended")
	}
	outer.Process.Kill()
	outer.Wait()
	if over(t, child, 200*time.Millisecond) {
		rig.Missing(t, "this bubblewrap leaves no orphan")
	}
	endOrphans()
	if !over(t, child, 10*time.Second) {
		t.Error("the orphan lives")
	}
}

// Who holds the other end of an entry socket is known by its number, and the
// process that asked for the box is spared.
func TestHoldersAreEnded(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	far := os.NewFile(uintptr(pair[1]), "far")
	defer far.Close()
	var st unix.Stat_t
	if err := unix.Fstat(pair[1], &st); err != nil {
		t.Fatal(err)
	}
	k := &Kit{far: st.Ino}
	if !holds("/proc/self", k.far) || holds("/proc/self", k.far+1) {
		t.Error("this process's own socket is not recognised")
	}
	cmd := exec.Command("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "sleep", "300")
	cmd.ExtraFiles = []*os.File{far}
	if err := cmd.Start(); err != nil {
		rig.Missing(t, "%v", err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	for tries := 0; ; tries++ { // the child in a namespace of its own has to be there first
		k.endHolders()
		select {
		case <-ended:
			return
		case <-time.After(20 * time.Millisecond):
		}
		if tries == 500 {
			t.Fatal("the holder lives")
		}
	}
}
