package box

import (
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

// A parent that dies before bubblewrap has asked to die with it leaves a box
// that nobody ends: it is never let go, also where its packet is there first.
func TestABoxWhoseParentIsDead(t *testing.T) {
	for _, dead := range []bool{false, true} {
		for range 20 { // each way round may be the first to be seen
			if err := met(t, dead); (err != nil) != dead {
				t.Fatalf("the parent is dead: %v; the answer: %v", dead, err)
			}
		}
	}
}

// met plays boxentry and bubblewrap, whose parent a process of the test's is.
func met(t *testing.T, dead bool) error {
	parent := exec.Command("sleep", "300")
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { parent.Process.Kill(); parent.Wait() }()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	near, far := os.NewFile(uintptr(pair[0]), "near"), os.NewFile(uintptr(pair[1]), "far")
	defer near.Close()
	defer far.Close()
	entry, err := net.FileConn(near)
	if err != nil {
		t.Fatal(err)
	}
	defer entry.Close()
	k := &Kit{entry: entry.(*net.UnixConn)}
	k.HeldBy(parent.Process.Pid)
	far.WriteString(wire.Donation{Build: wire.Build, Landlock: Landlock()}.String())
	if dead {
		parent.Process.Kill()
		k.holder.Wait()
	}
	child := make(chan int, 1)
	child <- parent.Process.Pid // as if it were counted otherwise
	l := &Live{kit: k}
	defer func() { l.Engine.Close(); l.Init.Close() }() // not Close: it kills them
	err = l.meet(child, &Plan{}, 5*time.Second)
	if err == nil && l.Init.Pid != os.Getppid() {
		t.Errorf("the box's PID 1 is taken to be %d, and its engine's parent is %d", l.Init.Pid, os.Getppid())
	}
	return err
}
