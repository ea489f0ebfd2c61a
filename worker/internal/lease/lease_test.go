package lease

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/spec"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

func some(n int) []*os.File { return make([]*os.File, n) }

func packed(t testing.TB, r reply) []byte {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An answer that lacks anything at all is no box.
func TestReadReply(t *testing.T) {
	ours := turn.Answer{ID: "box_1", Build: wire.Build}
	for name, c := range map[string]struct {
		packet []byte
		files  int
		code   reason.Code // "" = a lease
	}{
		"whole":                     {packed(t, reply{Answer: &ours, Bwrap: "/usr/bin/bwrap", Argv: []string{"bwrap"}, Files: 2}), 2, ""},
		"a file short":              {packed(t, reply{Answer: &ours, Argv: []string{"bwrap"}, Files: 2}), 1, reason.Internal},
		"a file too many":           {packed(t, reply{Answer: &ours, Argv: []string{"bwrap"}, Files: 2}), 3, reason.Internal},
		"no file":                   {packed(t, reply{Answer: &ours, Argv: []string{"bwrap"}}), 0, reason.Internal},
		"no command line":           {packed(t, reply{Answer: &ours, Files: 1}), 1, reason.Internal},
		"another build":             {packed(t, reply{Answer: &turn.Answer{Build: "other"}, Argv: []string{"bwrap"}, Files: 1}), 1, reason.VersionSkew},
		"neither answer nor error":  {[]byte(`{}`), 1, reason.VersionSkew},
		"null":                      {[]byte(`null`), 0, reason.VersionSkew},
		"not JSON":                  {[]byte(`hello`), 0, reason.Internal},
		"nothing":                   {nil, 0, reason.Internal},
		"an error":                  {packed(t, reply{Error: &reason.Fault{Code: "path_refused", Message: "x", Hint: "y"}}), 0, reason.PathRefused},
		"an error of another build": {packed(t, reply{Error: &reason.Fault{Code: "of-tomorrow", Message: "x"}}), 0, reason.Internal},
		"an error and an answer":    {packed(t, reply{Answer: &ours, Argv: []string{"bwrap"}, Files: 1, Error: &reason.Fault{Code: "bad_spec"}}), 1, reason.BadSpec},
	} {
		l, err := readReply(c.packet, some(c.files))
		switch {
		case c.code == "" && (err != nil || l.bwrap != "/usr/bin/bwrap" || len(l.files) != 2 || l.Answer.ID != "box_1"):
			t.Errorf("%s: %+v, %v", name, l, err)
		case c.code != "" && (l != nil || reason.Of(err).Code != c.code):
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}

func FuzzReadReply(f *testing.F) {
	f.Add([]byte(`{"answer":{"build":"`+wire.Build+`"},"argv":["x"],"files":1}`), 1)
	f.Add([]byte(`{"error":{"code":"system"}}`), 0)
	f.Fuzz(func(t *testing.T, packet []byte, files int) {
		files &= 0xff
		l, err := readReply(packet, some(files))
		if (l == nil) == (err == nil) {
			t.Fatalf("%v and %v", l, err)
		}
		if l != nil && (len(l.files) == 0 || len(l.argv) == 0 || l.Answer.Build != wire.Build) {
			t.Fatalf("taken: %+v", l)
		}
	})
}

// Only a sealed memfd is read: another file could block or change.
func TestReadFile(t *testing.T) {
	sealed, err := box.Sealed("spec", []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	defer sealed.Close()
	if b, err := readFile(sealed); err != nil || string(b) != "text" {
		t.Errorf("positive control: %q, %v", b, err)
	}
	fd, err := unix.MemfdCreate("open", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	pipe, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for name, f := range map[string]*os.File{"a memfd without a seal": os.NewFile(uintptr(fd), "open"), "a plain file": plain, "a pipe": pipe} {
		if _, err := readFile(f); err == nil {
			t.Errorf("%s was read", name)
		}
		f.Close()
	}
}

// pair gives two ends of a connection as the lease socket has them.
func pair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]*net.UnixConn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		ends[i] = conn.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// An answer comes through whole, however long, with its files in their order.
func TestAnswersOfAnyLength(t *testing.T) {
	for _, size := range []int{1, maxPacket - 200, maxPacket + 1, 1 << 20} {
		ours, theirs := pair(t)
		var files []*os.File
		for range 3 {
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			files = append(files, f)
		}
		sent := make(chan error, 1)
		go func() {
			sent <- send(ours, reply{Answer: &turn.Answer{Build: wire.Build}, Bwrap: "bwrap", Argv: []string{strings.Repeat("x", size)}, Files: 3}, files)
		}()
		raw, err := theirs.File()
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		if err := unix.SetNonblock(int(raw.Fd()), false); err != nil {
			t.Fatal(err)
		}
		packet, got, err := readAnswer(int(raw.Fd()))
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if err := <-sent; err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		l, err := readReply(packet, got)
		if err != nil || len(l.argv[0]) != size {
			t.Errorf("%d bytes: %v", size, err)
		}
		closeAll(got)
	}
}

// A spec comes inline or as a memfd; anything beside it is refused, and no
// file that came along stays open.
func TestReadSpec(t *testing.T) {
	good := []byte(`{"argv":["true"],"cwd":"/srv/project"}`)
	sealed, err := box.Sealed("spec", good)
	if err != nil {
		t.Fatal(err)
	}
	defer sealed.Close()
	fd := int(sealed.Fd())
	for name, c := range map[string]struct {
		packet []byte
		files  []int
		ok     bool
	}{
		"inline":          {good, nil, true},
		"as a memfd":      {[]byte("spec"), []int{fd}, true},
		"two files":       {[]byte("spec"), []int{fd, fd}, false},
		"half":            {good[:9], nil, false},
		"longer than one": {append(good, make([]byte, maxPacket)...), nil, false},
	} {
		ours, theirs := pair(t)
		ours.SetReadBuffer(1 << 20)
		theirs.SetWriteBuffer(1 << 20)
		var rights []byte
		if c.files != nil {
			rights = unix.UnixRights(c.files...)
		}
		if _, _, err := theirs.WriteMsgUnix(c.packet, rights, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before := openFiles(t)
		s, err := readSpec(ours)
		if (err == nil) != c.ok || c.ok && s.Argv[0] != "true" || !c.ok && reason.Of(err).Code != reason.BadSpec {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if after := openFiles(t); after != before {
			t.Errorf("%s: %d files open, %d before", name, after, before)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestCheckPeer(t *testing.T) {
	dir := t.TempDir()
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if st, err := os.Stat(filepath.Join(dir, SocketName)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", st.Mode(), err)
	}
	fd, err := connect(filepath.Join(dir, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if pid, err := peer(conn); err != nil || pid != os.Getpid() {
		t.Errorf("ourselves: pid %d, %v", pid, err)
	}
	if !Alive(filepath.Join(dir, SocketName)) {
		t.Error("somebody listens, and it is not seen")
	}
	l.Close()
	if Alive(filepath.Join(dir, SocketName)) {
		t.Error("nobody listens any more")
	}
	if _, err := Ask(dir, spec.Spec{}); err != ErrNoWorker {
		t.Errorf("ask nobody: %v", err)
	}
}

// A caller that says nothing is told so in the end: the time that it may take
// is not the answer's.
func TestTheAnswerHasItsOwnTime(t *testing.T) {
	ours, theirs := pair(t)
	ours.SetReadDeadline(time.Now())
	if _, err := readSpec(ours); err == nil {
		t.Fatal("a spec of nothing")
	} else if err := send(ours, refusal(err), nil); err != nil {
		t.Errorf("the answer: %v", err)
	}
	answer := make([]byte, 4096)
	theirs.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := theirs.Read(answer); err != nil || !strings.Contains(string(answer[:n]), "bad_spec") {
		t.Errorf("%s, %v", answer[:n], err)
	}
}
