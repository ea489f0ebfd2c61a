package vault

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

// supervisor is the other end of a pair, by hand.
type supervisor struct {
	t   *testing.T
	fd  int
	out wire.Order
}

func pair(t *testing.T) (*Vault, *supervisor) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	v, err := Open(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.conn.Close(); unix.Close(fds[1]) })
	return v, &supervisor{t, fds[1], wire.Order{Epoch: wire.VaultEpoch}}
}

func (s *supervisor) raw(text string, files ...int) {
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	if err := unix.Sendmsg(s.fd, []byte(text), rights, nil, 0); err != nil {
		s.t.Error(err)
	}
}

func (s *supervisor) say(files []int, verb wire.Verb, keyvals ...string) {
	b, err := s.out.Frame(wire.ToWorker, verb, keyvals...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.raw(string(b), files...)
}

// hear gives the next packet and how many files came with it.
func (s *supervisor) hear() (string, int) {
	s.t.Helper()
	b, rights := make([]byte, wire.MaxFrame), make([]byte, 256)
	n, nr, _, _, err := unix.Recvmsg(s.fd, b, rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		s.t.Fatal(err)
	}
	files := 0
	messages, _ := unix.ParseSocketControlMessage(rights[:nr])
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			unix.Close(fd)
		}
		files += len(fds)
	}
	return string(b[:n]), files
}

func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

func TestTakeThenKeep(t *testing.T) {
	v, s := pair(t)
	s.say([]int{0, 1}, wire.VaultHave, "box", "a", "kinds", "pl", "text", `{"x":1}`) // answers may come early here
	s.say([]int{0}, wire.VaultHave, "box", "b", "kinds", "p", "text", wire.NoNote)
	s.say(nil, wire.VaultEnd)
	all, err := v.Take()
	if err != nil || len(all) != 2 || all[0].Box != "a" || all[0].Text != `{"x":1}` || len(all[0].Files) != 2 || all[1].Kinds != "p" {
		t.Fatalf("%v, %+v", err, all)
	}
	for _, d := range all {
		d.Close()
	}
	if err := v.Keep("c", "ps", []int{0, 1}); err != nil {
		t.Fatal(err)
	}
	v.Note("c", "n")
	v.Drop("c")
	for _, want := range []struct {
		text  string
		files int
	}{{"1 1 vault.next\n", 0}, {"1 2 vault.next\n", 0}, {"1 3 vault.next\n", 0},
		{"1 4 vault.keep box=c kinds=ps\n", 2}, {"1 5 vault.note box=c text=n\n", 0}, {"1 6 vault.drop box=c\n", 0}} {
		if text, files := s.hear(); text != want.text || files != want.files {
			t.Errorf("said %q with %d files, want %+v", text, files, want)
		}
	}
	full := make(chan string, 1)
	go v.Listen(func(box string) { full <- box })
	s.say(nil, wire.VaultFull, "box", "c")
	select {
	case box := <-full:
		if box != "c" {
			t.Errorf("full for %q", box)
		}
	case <-time.After(10 * time.Second):
		t.Error("nobody heard that the vault is full")
	}
	var none *Vault
	if all, err := none.Take(); all != nil || err != nil || none.Keep("a", "p", []int{0}) != nil || none.Drop("a") != nil {
		t.Error("a worker without a supervisor keeps nothing, and that is no fault")
	}
}

// An answer out of place leaves the worker with nothing.
func TestAnswersOutOfPlace(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		files []int
	}{
		"nonsense":        {"nonsense", []int{0}},
		"a frame of FIFO": {"1 2 ping\n", []int{0}},
		"a gap":           {"1 3 vault.end\n", nil},
		"files missing":   {"1 2 vault.have box=b kinds=pp text=-\n", []int{0}},
		"files too many":  {"1 2 vault.have box=b kinds=p text=-\n", []int{0, 0}},
		"end with files":  {"1 2 vault.end\n", []int{0}},
		"full":            {"1 2 vault.full box=b\n", nil},
	} {
		v, s := pair(t)
		s.say([]int{0, 1}, wire.VaultHave, "box", "a", "kinds", "pl", "text", "-")
		before := openFiles()
		s.raw(c.text, c.files...)
		if all, err := v.Take(); err == nil || all != nil || openFiles() != before {
			t.Errorf("%s: %v, %d deposits, %d files, %d before", name, err, len(all), openFiles(), before)
		}
	}
	v, s := pair(t)
	unix.Close(s.fd)
	if _, err := v.Take(); err == nil {
		t.Error("a supervisor that is gone")
	}
}
