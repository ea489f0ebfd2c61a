package gatetest

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// outside carries the network namespace that the first process is in.
const outside = "BOTBOX_TEST_OUTER_NETNS"

// Inside runs the calling test once more in a network namespace of its own.
// It returns true there, and false in the first process once the second one
// has passed; the test then returns.
func Inside(t *testing.T) bool {
	t.Helper()
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if outer := os.Getenv(outside); outer != "" {
		if outer == here {
			t.Fatal("still in the outer network namespace")
		}
		Run(t, "ip", "link", "set", "lo", "up")
		return true
	}
	args := []string{"-rn"}
	if os.Geteuid() == 0 {
		args = []string{"-n"}
	}
	if out, err := exec.Command("unshare", append(args, "ip", "link")...).CombinedOutput(); err != nil {
		skip(t, "no network namespace to be had: "+string(out))
	}
	args = append(args, os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$")
	cmd := exec.Command("unshare", args...)
	cmd.Env = append(os.Environ(), outside+"="+here)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("in the namespace: %v\n%s", err, out)
	}
	return false
}

func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("BOTBOX_MUST_RUN") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// Run runs a command that must succeed.
func Run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// The neighbour's addresses, and ours on the wire between. All are public by
// the address policy; none leaves the two namespaces.
const (
	Near4, Far4 = "8.8.4.1", "8.8.4.4"
	Near6, Far6 = "2600:ff00::1", "2600:ff00::4"
)

// Neighbour makes a second network namespace that is joined to this one by a
// veth pair. The function that it returns listens there.
func Neighbour(t *testing.T) (listen func(address string) net.Listener) {
	t.Helper()
	work := make(chan func())
	tid := make(chan string)
	go func() {
		// The thread ends with this goroutine, because it is never unlocked,
		// so nothing else ever runs in its namespace.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		link, _ := os.Readlink("/proc/thread-self")
		tid <- "/proc/" + link + "/ns/net"
		for f := range work {
			f()
		}
	}()
	t.Cleanup(func() { close(work) })
	there := func(f func()) {
		done := make(chan struct{})
		work <- func() { defer close(done); f() }
		<-done
	}
	far := <-tid
	Run(t, "ip", "link", "add", "near", "type", "veth", "peer", "name", "far")
	Run(t, "ip", "link", "set", "far", "netns", far)
	configure := func(dev, four, six string) {
		Run(t, "ip", "addr", "add", four+"/24", "dev", dev)
		Run(t, "ip", "addr", "add", six+"/64", "dev", dev, "nodad")
		Run(t, "ip", "link", "set", dev, "up")
	}
	configure("near", Near4, Near6)
	// exec forks from the locked thread, so the child is in its namespace.
	there(func() {
		// Go decides once whether there is IPv6, by binding ::1.
		Run(t, "ip", "link", "set", "lo", "up")
		configure("far", Far4, Far6)
	})
	return func(address string) net.Listener {
		t.Helper()
		var ln net.Listener
		var err error
		there(func() { ln, err = net.Listen("tcp", address) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		return ln
	}
}
