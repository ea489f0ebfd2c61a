package gatetest

import (
	"io"
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

// Inside runs the calling test once more in a network namespace of its own,
// and in a mount namespace, where it may put files of its own in place of the
// machine's.
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
	args := []string{"-rnm"}
	if os.Geteuid() == 0 {
		args = []string{"-nm"}
	}
	if out, err := exec.Command("unshare", append(args, "ip", "link")...).CombinedOutput(); err != nil {
		skip(t, "no network namespace to be had: "+string(out))
	}
	args = append(args, os.Args[0], "-test.v", "-test.timeout=5m", "-test.run", "^"+t.Name()+"$")
	cmd := exec.Command("unshare", args...)
	cmd.Env = append(os.Environ(), outside+"="+here)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("in the namespace: %v\n%s", err, out)
	}
	t.Logf("in the namespace:\n%s", out) // a test's figures
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

// Up sets a link up and waits until the kernel has seen its carrier: before
// that an IPv6 address of the link has no route yet.
func Up(t *testing.T, dev string) {
	t.Helper()
	Run(t, "ip", "link", "set", dev, "up")
	WaitFor(t, func() bool {
		out, err := exec.Command("ip", "-o", "link", "show", dev).Output()
		return err == nil && strings.Contains(string(out), " state UP ")
	})
}

// inUse waits until the kernel has taken an IPv6 address of ours into use,
// which it does in a work queue.
func inUse(t *testing.T, address string) {
	t.Helper()
	WaitFor(t, func() bool {
		out, err := exec.Command("ip", "-6", "route", "show", "table", "local", address).Output()
		return err == nil && len(out) > 0
	})
}

// The neighbour's addresses, and ours on the wire between. All are public by
// the address policy; none leaves the two namespaces.
const (
	Near4, Far4 = "8.8.4.1", "8.8.4.4"
	Near6, Far6 = "2600:ff00::1", "2600:ff00::4"
)

// Peer is a second network namespace, joined to the test's by a veth pair.
type Peer struct {
	t     *testing.T
	there func(func()) // runs a function in it
}

// Neighbour makes one. The function that it returns listens there.
func Neighbour(t *testing.T) (listen func(address string) net.Listener) { return Join(t).Listen }

// Join makes one.
func Join(t *testing.T) *Peer {
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
	p := &Peer{t, func(f func()) {
		done := make(chan struct{})
		work <- func() { defer close(done); f() }
		<-done
	}}
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
	p.there(func() {
		// Go decides once whether there is IPv6, by binding ::1.
		Run(t, "ip", "link", "set", "lo", "up")
		configure("far", Far4, Far6)
	})
	Up(t, "near")
	inUse(t, Near6)
	p.there(func() { inUse(t, Far6) })
	return p
}

// World makes a neighbour that has every address there is: whatever this
// namespace sends anywhere arrives at its listener on port 80, so that a dial
// which should not be is seen and answered.
func World(t *testing.T) net.Listener {
	t.Helper()
	p := Join(t)
	p.there(func() {
		// In the table main, where the way back to us is narrower.
		Run(t, "ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo", "table", "main")
		Run(t, "ip", "-6", "route", "add", "local", "::/0", "dev", "lo", "table", "main")
	})
	Run(t, "ip", "route", "add", "default", "via", Far4)
	Run(t, "ip", "-6", "route", "add", "default", "via", Far6)
	return p.Listen("[::]:80")
}

// Also gives both ends one more address of a network, with its length.
func (p *Peer) Also(near, far string) {
	p.t.Helper()
	Run(p.t, "ip", "addr", "add", near, "dev", "near")
	p.there(func() { Run(p.t, "ip", "addr", "add", far, "dev", "far") })
}

// Listen accepts TCP there.
func (p *Peer) Listen(address string) net.Listener {
	p.t.Helper()
	return opened(p, func() (net.Listener, error) { return net.Listen("tcp", address) })
}

// ListenPacket receives UDP there.
func (p *Peer) ListenPacket(address string) net.PacketConn {
	p.t.Helper()
	return opened(p, func() (net.PacketConn, error) { return net.ListenPacket("udp", address) })
}

// opened opens a socket there, for as long as the test runs.
func opened[S io.Closer](p *Peer, open func() (S, error)) (s S) {
	p.t.Helper()
	var err error
	p.there(func() { s, err = open() })
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { s.Close() })
	return s
}
