package main

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

func TestOrders(t *testing.T) {
	o, err := parseOrders([]string{"socket=12", "listen=3128,18080", "nproc=64", "nofile=0", "fsize=2", "tty=true", "core=true", "--", "sh", "--", "socket=x"})
	if err != nil || o.socket != 12 || !slices.Equal(o.listen, []int{3128, 18080}) || o.nproc != 64 || o.fsize != 2 || !o.tty || !o.core ||
		!slices.Equal(o.command, []string{"sh", "--", "socket=x"}) {
		t.Errorf("%+v, %v", o, err)
	}
	for _, words := range []string{"", "--", "socket=12", "socket=a -- sh", "listen=70000 -- sh", "listen=1,,2 -- sh",
		"nproc=-1 -- sh", "fsize=9999999999 -- sh", "tty=perhaps -- sh", "core=1000 -- sh", "unknown=1 -- sh", "sh"} {
		if o, err := parseOrders(strings.Fields(words)); err == nil {
			t.Errorf("%q was taken as %+v", words, o)
		}
	}
}

func FuzzOrders(f *testing.F) {
	f.Add("socket=12\x00listen=1,2\x00--\x00sh")
	f.Fuzz(func(t *testing.T, text string) {
		words := strings.Split(text, "\x00")
		o, err := parseOrders(words)
		if err != nil {
			return
		}
		if len(o.command) == 0 || words[len(words)-len(o.command)-1] != "--" {
			t.Fatalf("%q gives the command %q", words, o.command)
		}
		for _, port := range o.listen {
			if port < 0 || port > 65535 {
				t.Fatalf("port %d of %q", port, words)
			}
		}
	})
}

// worker plays the worker's part on the other end of an entry socket.
func worker(t *testing.T, answer string) (socket int, donation func() string) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if answer != "" {
		if err := unix.Sendmsg(pair[1], []byte(answer), nil, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { unix.Close(pair[1]) })
	return pair[0], func() string {
		b := make([]byte, 256)
		n, _, _, _, err := unix.Recvmsg(pair[1], b, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if answer == "" {
			unix.Close(pair[1])
		}
		return string(b[:n])
	}
}

func TestDonateGivesTheFoldersOfAGo(t *testing.T) {
	want := []string{"/work", "/" + strings.Repeat("x", 4000), "/tmp"}
	socket, donation := worker(t, wire.Go(want))
	got, err := (&orders{socket: socket}).donate(7)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if d, err := wire.ParseDonation(donation()); err != nil || d != (wire.Donation{Build: wire.Build, Landlock: 7}) {
		t.Errorf("donated %+v, %v", d, err)
	}
	if _, err := unix.FcntlInt(uintptr(socket), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the entry socket is open for the engine: %v", err)
	}
}

func TestNoGoNoEngine(t *testing.T) {
	said := wire.Refusal{Code: "limits-unavailable", Text: "no", Hint: "yes"}
	for answer, want := range map[string]error{wire.No(said): said, "go": wire.ErrNoGo, "\x00": wire.ErrNoGo} {
		socket, _ := worker(t, answer)
		if writable, err := (&orders{socket: socket}).donate(0); !errors.Is(err, want) || writable != nil {
			t.Errorf("%q: %q, %v", answer, writable, err)
		}
		unix.Close(socket)
	}
	socket, donation := worker(t, "")
	done := make(chan error, 1)
	go func() { _, err := (&orders{socket: socket}).donate(0); done <- err }()
	donation() // and hangs up
	if err := <-done; !errors.Is(err, wire.ErrNoGo) {
		t.Errorf("an end of file: %v", err)
	}
	unix.Close(socket)
}

// The score is raised, and one that is higher already stays.
func TestRaiseOOMScore(t *testing.T) {
	score := func() int {
		b, err := os.ReadFile("/proc/self/oom_score_adj")
		n, err2 := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		return n
	}
	raiseOOMScore()
	if n := score(); n < oomScore {
		t.Errorf("the score is %d", n)
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("700"), 0); err != nil {
		t.Fatal(err)
	}
	raiseOOMScore()
	if n := score(); n != 700 {
		t.Errorf("the score went from 700 to %d", n)
	}
}
