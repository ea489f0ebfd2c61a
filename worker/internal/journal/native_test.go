package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

const (
	inside     = "BOTBOX_JOURNAL_TEST_INSIDE"
	socketPath = "/run/systemd/journal/socket"
)

// go-systemd sends to one fixed path. So the test runs itself again in a mount
// namespace of its own, where it may put a socket there.
func TestNative(t *testing.T) {
	if os.Getenv(inside) == "1" {
		insideNamespace(t)
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestNative$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && os.Getenv("BOTBOX_MUST_RUN") != "1" {
		t.Skip("no user namespace here: ", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: TestNative") {
		t.Errorf("%v\n%s", err, out)
	}
}

func insideNamespace(t *testing.T) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	var out buffer
	if _, err := Open("journal", &out); reason.Of(err).Code != reason.BadSetting {
		t.Errorf("no journal: %v", err)
	}
	if err := os.MkdirAll("/run/systemd/journal", 0o755); err != nil {
		t.Fatal(err)
	}
	// A failure of one leaves nothing for the next to build on.
	_ = t.Run("entry", entryArrives) && t.Run("auto", autoDecides) && t.Run("full", fullSocket) && t.Run("gone", goneSocket)
}

// listen plays the journal.
func listen(t *testing.T) *net.UnixConn {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socketPath, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); os.Remove(socketPath) })
	return c
}

// receive reads one entry in the journal's native protocol.
func receive(t *testing.T, c *net.UnixConn) map[string]string {
	t.Helper()
	buf := make([]byte, 256<<10)
	c.SetReadDeadline(time.Now().Add(30 * time.Second))
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for rest := string(buf[:n]); rest != ""; {
		line, after, _ := strings.Cut(rest, "\n")
		name, value, plain := strings.Cut(line, "=")
		if !plain { // name, length in 8 bytes, value
			size := binary.LittleEndian.Uint64([]byte(after[:8]))
			value, after = after[8:8+size], after[9+size:]
		}
		if _, twice := fields[name]; twice {
			t.Errorf("the field %s is there twice", name)
		}
		fields[name], rest = value, after
	}
	return fields
}

func open(t *testing.T, mode string, out *buffer) *Log {
	t.Helper()
	l, err := Open(mode, out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(0) })
	return l
}

func entryArrives(t *testing.T) {
	c := listen(t)
	var out buffer
	log := slog.New(open(t, "journal", &out).Handler())
	TokenStolen.Log(log, slog.String("box_id", "b1"), slog.String("why", "two\nMESSAGE_ID=0"),
		slog.String("a=1\nMESSAGE_ID", "forged"), slog.String("priority", "7"), slog.String("token", stolen))
	got := receive(t, c)
	want := map[string]string{
		"MESSAGE": TokenStolen.Means, "PRIORITY": "3", "MESSAGE_ID": TokenStolen.ID, "SYSLOG_IDENTIFIER": "botbox",
		"EVENT": "token-stolen", "BOX_ID": "b1", "WHY": "two\nMESSAGE_ID=0", "TOKEN": "[token]", "FIELDS_REFUSED": "2",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	log.Warn("w")
	if got := receive(t, c); got["PRIORITY"] != "4" || got["MESSAGE_ID"] != "" {
		t.Errorf("a plain warning: %q", got)
	}
	if out.String() != "" {
		t.Errorf("also on stderr: %s", out.String())
	}
	// The largest entry that can be made is still one datagram.
	attrs := []any{}
	for i := range maxFields {
		attrs = append(attrs, "f"+strconv.Itoa(i), strings.Repeat("\n", maxValue))
	}
	log.Info(strings.Repeat("m", maxValue), attrs...)
	if got := receive(t, c); len(got) != maxFields+3 || got["F31"] != strings.Repeat("\n", maxValue) {
		t.Errorf("the largest entry: %d fields", len(got))
	}
}

func autoDecides(t *testing.T) {
	c := listen(t)
	var st unix.Stat_t
	if err := unix.Fstat(2, &st); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what, stream string
		native       bool
	}{
		{"stderr is the stream", fmt.Sprintf("%d:%d", st.Dev, st.Ino), true},
		{"stderr is something else", fmt.Sprintf("%d:%d", st.Dev, st.Ino+1), false},
		{"no stream", "", false},
		{"nonsense", "x", false},
	} {
		t.Setenv("JOURNAL_STREAM", tt.stream)
		var out buffer
		l := open(t, "auto", &out)
		slog.New(l.Handler()).Info(tt.what)
		l.Close(time.Minute)
		if native := out.String() == ""; native != tt.native {
			t.Errorf("%s: journal %v, want %v", tt.what, native, tt.native)
		} else if native && receive(t, c)["MESSAGE"] != tt.what {
			t.Errorf("%s: another message", tt.what)
		}
	}
}

// fullSocket stops the journal without closing its socket.
func fullSocket(t *testing.T) {
	c := listen(t)
	var out buffer
	l := open(t, "journal", &out)
	log := slog.New(l.Handler())
	const n = 2 * depth
	for range n { // would never end if Handle waited for the socket
		log.Info("x")
	}
	lines, dropped := 0, 0
	for lines+dropped < n {
		got := receive(t, c)
		if d, err := strconv.Atoi(got["DROPPED"]); err == nil {
			dropped += d
		} else {
			lines++
		}
	}
	if lines+dropped != n || dropped == 0 {
		t.Errorf("%d written and %d dropped of %d", lines, dropped, n)
	}
}

// goneSocket takes the journal away from an open log.
func goneSocket(t *testing.T) {
	c := listen(t)
	var out buffer
	l := open(t, "journal", &out)
	c.Close()
	os.Remove(socketPath)
	slog.New(l.Handler()).Error("nobody listens", "box_id", "b1")
	l.Close(time.Minute)
	if !strings.HasSuffix(out.String(), " error nobody listens box_id=b1\n") {
		t.Errorf("on stderr: %q", out.String())
	}
}
