package box

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/rig"
)

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
