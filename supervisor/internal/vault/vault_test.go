package vault

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

// worker is the other end of a pair, by hand.
type worker struct {
	t    testing.TB
	v    *Vault
	line *Line
	fd   int
	out  wire.Order
}

func begin(t testing.TB, v *Vault) *worker {
	t.Helper()
	v.Begin()
	line, fd, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{t, v, line, fd, wire.Order{Epoch: wire.VaultEpoch}}
	t.Cleanup(func() { line.Close(); unix.Close(fd) })
	return w
}

func (w *worker) raw(b []byte, files ...int) {
	w.t.Helper()
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	if err := unix.Sendmsg(w.fd, b, rights, nil, unix.MSG_DONTWAIT); err != nil {
		w.t.Fatal(err)
	}
}

// serve hands the next packet to the vault and its answer back.
func (w *worker) serve() error {
	w.t.Helper()
	select {
	case p := <-w.line.In():
		answer, err := w.v.Serve(p)
		if err == nil && answer != nil {
			err = w.line.Send(answer)
		}
		return err
	case <-time.After(10 * time.Second):
		w.t.Fatal("the packet never came")
		return nil
	}
}

func (w *worker) say(verb wire.Verb, files []int, keyvals ...string) error {
	w.t.Helper()
	b, err := w.out.Frame(wire.ToSupervisor, verb, keyvals...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.raw(b, files...)
	return w.serve()
}

func (w *worker) hear() (wire.Frame, []int) {
	w.t.Helper()
	b, rights := make([]byte, wire.MaxFrame), make([]byte, 256)
	n, nr, _, _, err := unix.Recvmsg(w.fd, b, rights, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		w.t.Fatalf("no answer: %v", err)
	}
	f, err := wire.Decode(wire.ToWorker, b[:n])
	files, _ := filesOf(rights[:nr])
	if err != nil {
		w.t.Fatal(err)
	}
	return f, files
}

func open(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// child is a process with its pidfd.
func child(t testing.TB) (*exec.Cmd, int) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return cmd, fd
}

func keepOpen(t testing.TB, fd int, err error) int {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func socket(t testing.TB, family, kind int) int {
	t.Helper()
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	return keepOpen(t, fd, err)
}

func listener(t testing.TB) int {
	t.Helper()
	fd := socket(t, unix.AF_INET, unix.SOCK_STREAM)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 16)); err != nil {
		t.Fatal(err)
	}
	return fd
}

func memfd(t testing.TB, size int, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("record", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	keepOpen(t, fd, err)
	unix.Ftruncate(fd, int64(size))
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

const sealed = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// full gives the files of a whole deposit and its kinds.
func full(t testing.TB) (*exec.Cmd, string, []int) {
	t.Helper()
	cmd, process := child(t)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(pipe[0]); unix.Close(pipe[1]) })
	return cmd, "ppsrl", []int{process, process, pipe[0], memfd(t, 100, sealed), listener(t)}
}

func TestTheNextWorkerGetsAllBack(t *testing.T) {
	v := New()
	w := begin(t, v)
	cmd, kinds, files := full(t)
	for _, err := range []error{
		w.say(wire.VaultKeep, files, "box", "a", "kinds", kinds),
		w.say(wire.VaultKeep, files[:1], "box", "b", "kinds", "p"),
		w.say(wire.VaultNote, nil, "box", "a", "text", "seven bytes"),
		w.say(wire.VaultKeep, files, "box", "c", "kinds", kinds),
		w.say(wire.VaultDrop, nil, "box", "c"),
		w.say(wire.VaultDrop, nil, "box", "never there"[:5]),
		w.say(wire.VaultNote, nil, "box", "gone", "text", "x"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // each worker anew
		w = begin(t, v)
		got := map[string]wire.Frame{}
		for {
			if err := w.say(wire.VaultNext, nil); err != nil {
				t.Fatal(err)
			}
			f, back := w.hear()
			if f.Verb == wire.VaultEnd {
				break
			}
			got[f.Args["box"]] = f
			if err := check(f.Args["kinds"], back); err != nil {
				t.Error(err)
			}
			closeFiles(back)
		}
		if len(got) != 2 || got["a"].Args["kinds"] != kinds || got["a"].Args["text"] != "seven bytes" || got["b"].Args["text"] != wire.NoNote {
			t.Errorf("got back %v", got)
		}
		if err := w.say(wire.VaultNext, nil); err == nil {
			t.Error("asked for more after the end")
		}
	}
	// The listener is served by whoever gets it, though its first owner is gone.
	w = begin(t, v)
	var back []int
	for back == nil || len(back) == 1 {
		w.say(wire.VaultNext, nil)
		_, back = w.hear()
	}
	defer closeFiles(back)
	sa, _ := unix.Getsockname(files[4])
	unix.Close(files[4])
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", sa.(*unix.SockaddrInet4).Port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if fd, _, err := unix.Accept(back[4]); err != nil {
		t.Error(err)
	} else {
		unix.Close(fd)
	}
	files[4] = back[4]
	cmd.Process.Kill()
}

// Nobody asks: the end of its process is the end of a box here.
func TestABoxThatEndsIsDropped(t *testing.T) {
	v := New()
	w := begin(t, v)
	cmd, kinds, files := full(t)
	_, _, others := full(t)
	runtime.GC() // closes what is unreachable, once and now
	before := open(t)
	if err := errors.Join(w.say(wire.VaultKeep, files, "box", "a", "kinds", kinds), w.say(wire.VaultKeep, others, "box", "b", "kinds", kinds)); err != nil {
		t.Fatal(err)
	}
	if n := open(t) - before; n != 12 { // each with one more for the poller
		t.Errorf("%d files are held", n)
	}
	select {
	case d := <-v.Ended():
		t.Fatalf("%s has ended, it is said", d.box)
	case <-time.After(50 * time.Millisecond):
	}
	cmd.Process.Kill() // and not waited for: a zombie is over, too
	select {
	case d := <-v.Ended():
		v.Bury(d)
		v.Bury(d)
	case <-time.After(10 * time.Second):
		t.Fatal("nobody noticed")
	}
	if n := open(t) - before; n != 6 || v.held != 6 || v.boxes["a"] != nil || v.boxes["b"] == nil {
		t.Errorf("%d files are held, %d by its own count", n, v.held)
	}
	// A dead process that is deposited now is dropped at once.
	if err := w.say(wire.VaultKeep, files, "box", "late", "kinds", kinds); err != nil {
		t.Fatal(err)
	}
	v.Bury(<-v.Ended())
	if n := open(t) - before; n != 6 {
		t.Errorf("%d files are held", n)
	}
}

// What the kernel does not call so is not taken, and nothing of it stays.
func TestLiesAreRefused(t *testing.T) {
	_, good, files := full(t)
	process, status, record, listens := files[0], files[2], files[3], files[4]
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer closeFiles(pipe[:])
	both, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", pipe[0]), unix.O_RDWR|unix.O_CLOEXEC, 0)
	keepOpen(t, both, err)
	folder, err := unix.Open("/proc/self", unix.O_RDONLY|unix.O_CLOEXEC, 0) // pidfd_send_signal takes it
	keepOpen(t, folder, err)
	path, err := unix.Open("/proc/self/fd/"+fmt.Sprint(pipe[0]), unix.O_PATH|unix.O_CLOEXEC, 0)
	keepOpen(t, path, err)
	file, err := unix.Open("/etc/passwd", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	keepOpen(t, file, err)
	tcp, udp, six, local := socket(t, unix.AF_INET, unix.SOCK_STREAM), socket(t, unix.AF_INET, unix.SOCK_DGRAM), socket(t, unix.AF_INET6, unix.SOCK_STREAM), socket(t, unix.AF_UNIX, unix.SOCK_STREAM)
	unix.Listen(six, 1)
	unix.Bind(local, &unix.SockaddrUnix{Name: fmt.Sprintf("@vault-%d", os.Getpid())})
	unix.Listen(local, 1)
	conn, err := net.Dial("tcp", func() string {
		sa, _ := unix.Getsockname(listens)
		return fmt.Sprintf("127.0.0.1:%d", sa.(*unix.SockaddrInet4).Port)
	}())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	connected, err := conn.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	v := New()
	many := make([]int, wire.MaxVaultFiles+1)
	for i := range many {
		many[i] = process
	}
	for name, c := range map[string]struct {
		kinds string
		files []int
		good  bool
	}{
		"whole":                {good, files, true},
		"the most":             {strings.Repeat("p", wire.MaxVaultFiles), many[:wire.MaxVaultFiles], true},
		"one too many":         {strings.Repeat("p", wire.MaxVaultFiles+1), many, false},
		"no file":              {"p", nil, false},
		"a file more":          {"p", []int{process, process}, false},
		"a file less":          {"pp", []int{process}, false},
		"no process first":     {"lp", []int{listens, process}, false},
		"unknown kind":         {"px", []int{process, file}, false},
		"a folder of /proc":    {"p", []int{folder}, false},
		"a file as process":    {"p", []int{file}, false},
		"unconnected":          {"pl", []int{process, tcp}, false},
		"connected":            {"pl", []int{process, int(connected.Fd())}, false},
		"spares":               {"puu", []int{process, tcp, socket(t, unix.AF_INET6, unix.SOCK_STREAM)}, true},
		"a listening spare":    {"pu", []int{process, listens}, false},
		"a connected spare":    {"pu", []int{process, int(connected.Fd())}, false},
		"a spare of datagrams": {"pu", []int{process, udp}, false},
		"a spare that is unix": {"pu", []int{process, socket(t, unix.AF_UNIX, unix.SOCK_STREAM)}, false},
		"datagrams":            {"pl", []int{process, udp}, false},
		"IPv6":                 {"pl", []int{process, six}, false},
		"a unix socket":        {"pl", []int{process, local}, false},
		"a pipe as listener":   {"pl", []int{process, status}, false},
		"a write end":          {"ps", []int{process, pipe[1]}, false},
		"both ends":            {"ps", []int{process, both}, false},
		"a path":               {"ps", []int{process, path}, false},
		"a file as status":     {"ps", []int{process, file}, false},
		"a file as record":     {"pr", []int{process, file}, false},
		"an unsealed record":   {"pr", []int{process, memfd(t, 1, unix.F_SEAL_WRITE)}, false},
		"a record too long":    {"pr", []int{process, memfd(t, wire.MaxVaultRecord+1, sealed)}, false},
		"the longest record":   {"pr", []int{process, memfd(t, wire.MaxVaultRecord, sealed)}, true},
		"a process as record":  {"pr", []int{process, process}, false},
		"record in its place":  {"prl", []int{process, record, listens}, true},
	} {
		w := begin(t, v)
		before := open(t)
		err := w.say(wire.VaultKeep, c.files, "box", "b", "kinds", c.kinds)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
		if c.good {
			if err := w.say(wire.VaultKeep, c.files, "box", "b", "kinds", c.kinds); err == nil {
				t.Errorf("%s: taken twice", name)
			}
			v.drop("b")
		}
		if after := open(t); after != before || v.held != 0 {
			t.Errorf("%s: %d files, %d before", name, after, before)
		}
	}
}

// Every malformed packet is the end of the worker, and no file of it stays.
func TestMalformedPackets(t *testing.T) {
	_, _, files := full(t)
	for name, c := range map[string]struct {
		text  string
		files []int
	}{
		"nonsense":          {"nonsense", files},
		"no newline":        {"1 1 vault.next", nil},
		"files with next":   {"1 1 vault.next\n", files},
		"files with drop":   {"1 1 vault.drop box=a\n", files},
		"another epoch":     {"2 1 vault.next\n", nil},
		"a gap":             {"1 2 vault.next\n", nil},
		"a verb of FIFO's":  {"1 1 pong\n", nil},
		"ours":              {"1 1 vault.end\n", nil},
		"a path as box":     {"1 1 vault.drop box=../a\n", nil},
		"over-long":         {"1 1 vault.note box=a text=" + strings.Repeat("x", wire.MaxFrame) + "\n", files},
		"too many files":    {"1 1 vault.keep box=a kinds=" + strings.Repeat("p", 50) + "\n", slices.Repeat(files, 10)},
		"the end of a line": {"", nil},
	} {
		v := New()
		w := begin(t, v)
		before := open(t)
		w.raw([]byte(c.text), c.files...)
		err := w.serve()
		if err == nil || errors.Is(err, io.EOF) != (c.text == "") {
			t.Errorf("%s: %v", name, err)
		}
		if after := open(t); after != before {
			t.Errorf("%s: %d files, %d before", name, after, before)
		}
	}
}

func TestTheVaultIsBounded(t *testing.T) {
	v := New()
	v.room = 20
	w := begin(t, v)
	_, kinds, files := full(t)
	before, said := open(t), 0
	for i := range 100 {
		if err := w.say(wire.VaultKeep, files, "box", fmt.Sprintf("b%d", i), "kinds", kinds); err != nil {
			t.Fatal(err)
		}
		if i >= 3 {
			if f, _ := w.hear(); f.Verb != wire.VaultFull || f.Args["box"] != fmt.Sprintf("b%d", i) {
				t.Fatalf("%+v", f)
			}
			said++
		}
	}
	if n := open(t) - before; n != 18 || said != 97 {
		t.Errorf("%d files, %d refusals", n, said)
	}
	for _, d := range v.boxes {
		v.drop(d.box)
	}
	v.room = 1 << 20
	for i := range wire.MaxDeposits {
		if err := w.say(wire.VaultKeep, files[:1], "box", fmt.Sprintf("b%d", i), "kinds", "p"); err != nil {
			t.Fatal(err)
		}
	}
	w.say(wire.VaultKeep, files[:1], "box", "more", "kinds", "p")
	if f, _ := w.hear(); f.Verb != wire.VaultFull {
		t.Errorf("%+v", f)
	}
	for _, d := range v.boxes {
		v.drop(d.box)
	}
}

// A worker that asks and does not read is noticed, and nobody waits for it.
func TestAWorkerThatDoesNotRead(t *testing.T) {
	v := New()
	v.room = 0
	w := begin(t, v)
	_, kinds, files := full(t)
	began, before := time.Now(), open(t)
	var err error
	for i := 0; err == nil && i < 100_000; i++ {
		err = w.say(wire.VaultKeep, files, "box", "b", "kinds", kinds)
	}
	if !errors.Is(err, unix.EAGAIN) || time.Since(began) > 20*time.Second || open(t) != before {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// FuzzServe gives the vault whatever bytes with whatever of the files.
func FuzzServe(f *testing.F) {
	f.Add([]byte("1 1 vault.keep box=a kinds=ppsrl\n"), byte(0b11111))
	f.Add([]byte("1 1 vault.next\n"), byte(0))
	f.Add([]byte("1 1 vault.note box=a text=%22\n"), byte(1))
	_, _, files := full(f)
	f.Fuzz(func(t *testing.T, text []byte, which byte) {
		if len(text) > wire.MaxFrame || len(text) == 0 {
			return
		}
		v := New()
		w := begin(t, v)
		var some []int
		for i, fd := range files {
			if which&(1<<i) != 0 {
				some = append(some, fd)
			}
		}
		before := open(t)
		w.raw(text, some...)
		err := w.serve()
		held := open(t) - before
		if err != nil && (held != 0 || len(v.boxes) != 0) || held > wire.MaxVaultFiles+1 || held != v.held {
			t.Errorf("%q with %d files: %v, %d held", text, len(some), err, held)
		}
		for _, d := range v.boxes {
			v.drop(d.box)
		}
	})
}
