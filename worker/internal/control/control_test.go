package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
)

// side is the supervisor's side of a channel over two pipes.
type side struct {
	t     *testing.T
	to    *os.File
	from  *bufio.Reader
	order wire.Order
	heard wire.Order
}

func pair(t *testing.T) (*Channel, *side) {
	var fds [2][2]int
	for i := range fds {
		if err := unix.Pipe2(fds[i][:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
	}
	file := func(fd int) *os.File {
		f := os.NewFile(uintptr(fd), "pipe")
		t.Cleanup(func() { f.Close() })
		return f
	}
	c := &Channel{from: file(fds[0][0]), to: file(fds[1][1]), greeted: make(chan struct{})}
	c.in = wire.NewReader(c.from)
	s := &side{t: t, to: file(fds[0][1]), from: wire.NewReader(file(fds[1][0])), order: wire.Order{Epoch: 3}, heard: wire.Order{Epoch: 3}}
	return c, s
}

func (s *side) say(verb wire.Verb, kv ...string) {
	s.t.Helper()
	b, err := s.order.Frame(wire.ToWorker, verb, kv...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.to.Write(b)
}

// hears wants one frame, spelled "verb value value".
func (s *side) hears(want string) {
	s.t.Helper()
	f, err := wire.Read(s.from, wire.ToSupervisor)
	if err == nil {
		err = s.heard.Check(f)
	}
	got := string(f.Verb)
	for _, row := range wire.Verbs() {
		if row.Dir == wire.ToSupervisor && row.Verb == f.Verb {
			for _, k := range row.Keys {
				got += " " + f.Args[k.Name]
			}
		}
	}
	if err != nil || got != want {
		s.t.Fatalf("heard %q %v, want %q", got, err, want)
	}
}

type signalled struct {
	pid int
	sig syscall.Signal
}

// actions notes what is asked for.
type actions struct {
	signals chan signalled
	within  chan time.Duration
}

func (a *actions) BoxSignal(pid int, sig syscall.Signal) error {
	a.signals <- signalled{pid, sig}
	return errors.New("it has just ended") // which is no fault of the channel
}
func (a *actions) Drain(d time.Duration) { a.within <- d }

func run(t *testing.T) (*Channel, *side, *actions, chan error) {
	c, s := pair(t)
	a := &actions{make(chan signalled, 9), make(chan time.Duration, 9)}
	ended := make(chan error, 1)
	if err := c.Ready(); err != nil { // before hello: it waits for it
		t.Fatal(err)
	}
	go func() { ended <- c.Run(context.Background(), a) }()
	s.say(wire.Hello, "ver", wire.Version, "build", wire.Build)
	s.hears("hello.ack 1 " + wire.Build)
	s.hears("ready")
	return c, s, a, ended
}

// A question about a bot's user has one answer, and a supervisor that gives
// none is not asked again: its answer would be taken for another's.
func TestUsersOfBots(t *testing.T) {
	c, s, _, ended := run(t)
	type leased struct {
		lease string
		uid   int
		err   error
	}
	got := make(chan leased, 1)
	ask := func(bot string) { l, uid, err := c.LeaseUser(bot); got <- leased{l, uid, err} }
	go ask("alice")
	s.hears("uid.lease alice")
	s.say(wire.UIDLeased, "lease", "u1", "uid", "300000")
	if l := <-got; l != (leased{"u1", 300000, nil}) {
		t.Errorf("%+v", l)
	}
	mapped := make(chan error, 1)
	go func() { mapped <- c.MapUser("u1", 77) }()
	s.hears("uid.map u1 77")
	s.say(wire.UIDMapped, "lease", "u1")
	if err := <-mapped; err != nil {
		t.Error(err)
	}
	go func() { mapped <- c.MapUser("u2", 77) }()
	s.hears("uid.map u2 77")
	s.say(wire.UIDMapped, "lease", "u1")
	if err := <-mapped; err == nil {
		t.Error("the answer for another lease was taken")
	}
	go ask("bob")
	s.hears("uid.lease bob")
	s.say(wire.UIDRefused, "code", string(reason.BotUsersFull))
	if l := <-got; l.err == nil || reason.Of(l.err).Code != reason.BotUsersFull {
		t.Errorf("%+v", l)
	}
	if err := c.KillUser("u3"); err != nil {
		t.Error(err)
	}
	s.hears("box.kill u3")
	s.hears("uid.release u3")
	if _, _, err := c.LeaseUser("a:b"); err == nil {
		t.Error("a name that the channel has not was sent")
	}
	c.users.late = true
	if _, _, err := c.LeaseUser("alice"); err == nil {
		t.Error("asked after an answer that may still come")
	}
	s.say(wire.UIDLeased, "lease", "u1", "uid", "300000") // the late one goes nowhere, the second is a broken channel
	s.say(wire.UIDLeased, "lease", "u1", "uid", "300000")
	if err := <-ended; err == nil {
		t.Error("an answer that nobody asked for is no fault")
	}
}

func TestWholeConversation(t *testing.T) {
	_, s, a, ended := run(t)
	s.say(wire.BoxSignal, "pid", "77", "sig", "10")
	if got := <-a.signals; got != (signalled{77, syscall.SIGUSR1}) {
		t.Errorf("signal %v", got)
	}
	s.say(wire.Ping)
	s.hears("pong")
	s.say(wire.Drain, "seconds", "3.200")
	if d := <-a.within; d != 3200*time.Millisecond {
		t.Errorf("drain %v", d)
	}
	s.hears("drained")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRunEnds(t *testing.T) {
	_, s, _, ended := run(t)
	s.to.Close()
	if err := <-ended; !errors.Is(err, ErrGone) {
		t.Errorf("after the supervisor's death: %v", err)
	}
	for _, line := range []string{"3 9 ping\n", "4 2 ping\n", "3 2 pong\n", "3 2 box.spawn\n", strings.Repeat("x", 5000), "3 2 uid.mapped lease=x\n"} {
		_, s, _, ended := run(t)
		s.to.Write([]byte(line))
		if err := <-ended; err == nil || errors.Is(err, ErrGone) {
			t.Errorf("%.20q: %v", line, err)
		}
	}
	c, _ := pair(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Run(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestAnotherBuildIsRefused(t *testing.T) {
	c, s := pair(t)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(context.Background(), nil) }()
	s.say(wire.Hello, "ver", wire.Version, "build", "another")
	s.hears("hello.ack 1 " + wire.Build)
	if err := <-ended; reason.Of(err).Code != reason.VersionSkew {
		t.Error(err)
	}
}

// A start by hand finds no pipes. The test binary has other things there, so
// it starts itself again with nothing.
func TestOpenRefusesAStartByHand(t *testing.T) {
	if os.Getenv("CONTROL_TEST_OPEN") == "1" {
		_, _, err := Open()
		fmt.Println("code:", reason.Of(err).Code)
		os.Exit(0)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	r, w, _ := os.Pipe()
	p, err := os.StartProcess(os.Args[0], []string{os.Args[0], "-test.run=TestOpenRefusesAStartByHand"}, &os.ProcAttr{
		Env: []string{"CONTROL_TEST_OPEN=1"}, Files: []*os.File{null, w, w, null, null, null, null}})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	buf := make([]byte, 200)
	n, _ := r.Read(buf)
	p.Wait()
	if !strings.HasPrefix(string(buf[:n]), "code: usage") {
		t.Errorf("%s", buf[:n])
	}
}
