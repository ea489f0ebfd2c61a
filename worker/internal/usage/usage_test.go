package usage

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A stat line whose name tries to be fields of its own.
const stat = "7 (a) b) 1 2 (3) S 1 7 7 0 -1 4194304 96 8 0 0 100 20 3 1 20 0 1 0 1164530 2990080 415\n"

func TestParseStat(t *testing.T) {
	if got, err := parseStat(stat); err != nil || got != (spent{124 * tick, 8}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "7 (a)", "7 (a) S 1 7", strings.Replace(stat, "100 20", "x 20", 1), strings.Replace(stat, ")", "", 5)} {
		if got, err := parseStat(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// box lays out a /proc of PID 1 = 10, an engine 11 with two threads, each with
// a child.
func box(t *testing.T) Meter {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"10/stat": stat, "10/task/10/children": "11 ", "11/stat": stat, "11/task/11/children": "12 ", "11/task/15/children": "13 \n",
		"12/stat": stat, "12/task/12/children": "", "13/stat": stat, "13/task/13/children": "14 ", // which has just ended
		"11/net/netstat": "TcpExt: SyncookiesSent TCPOrigDataSent\nTcpExt: 1 42\nIpExt: InNoRoutes TCPOrigDataSent\nIpExt: 0 9\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Meter{Proc: dir, Init: 10, Engine: 11, Network: true}
}

func TestRead(t *testing.T) {
	u, err := box(t).Read()
	if err != nil || u.spent != (spent{4 * 124 * tick, 4 * 8}) || u.sent != 42 || len(u.processes) != 4 || !u.processes[13] {
		t.Errorf("%+v, %v", u, err)
	}
	for what, spoil := range map[string]func(*Meter) error{
		"no box":            func(m *Meter) error { m.Init = 99; return nil },
		"no engine":         func(m *Meter) error { m.Engine = 99; return nil },
		"no children shown": func(m *Meter) error { return os.Remove(m.path(10, "task/10/children")) },
		"no network shown":  func(m *Meter) error { return os.Remove(m.path(11, "net/netstat")) },
		"an older kernel": func(m *Meter) error {
			return os.WriteFile(m.path(11, "net/netstat"), []byte("TcpExt: A\nTcpExt: 1\n"), 0o644)
		},
		"a short line": func(m *Meter) error {
			return os.WriteFile(m.path(11, "net/netstat"), []byte("TcpExt: A TCPOrigDataSent\nTcpExt: 1\n"), 0o644)
		},
		"malformed children": func(m *Meter) error { return os.WriteFile(m.path(12, "task/12/children"), []byte("x"), 0o644) },
	} {
		m := box(t)
		if err := spoil(&m); err != nil {
			t.Fatal(err)
		}
		if u, err := m.Read(); err == nil {
			t.Errorf("%s: %+v", what, u)
		}
	}
}

func TestBusy(t *testing.T) {
	base := Use{spent: spent{time.Second, 100}, processes: map[int]bool{1: true, 2: true}, sent: 5}
	for what, c := range map[string]struct {
		change func(*Use)
		busy   bool
	}{
		"nothing":                    {func(u *Use) {}, false},
		"timers":                     {func(u *Use) { u.cpu += 100 * time.Millisecond }, false},
		"work":                       {func(u *Use) { u.cpu += 110 * time.Millisecond }, true},
		"a child that came and went": {func(u *Use) { u.dead += 70 }, true},
		"a segment":                  {func(u *Use) { u.sent++ }, true},
		"the terminal":               {func(u *Use) { u.touched = true }, true},
		"a process more":             {func(u *Use) { u.processes = map[int]bool{1: true, 2: true, 3: true} }, true},
		"a process less":             {func(u *Use) { u.processes = map[int]bool{1: true} }, false},
		"another process":            {func(u *Use) { u.processes = map[int]bool{1: true, 3: true} }, true},
		"time went with it":          {func(u *Use) { u.cpu -= 60 * time.Millisecond }, false},
	} {
		now := base
		c.change(&now)
		if got := now.Busy(base, 5*time.Second); got != c.busy {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// The kernel's own files, of this process and a child that ends.
func TestReadForReal(t *testing.T) {
	m := Meter{Init: os.Getpid(), Engine: os.Getpid(), Network: true}
	before, err := m.Read()
	if err != nil {
		t.Fatal(err)
	}
	m.Network = false // which is everybody's here
	before.sent = 0
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	with, err := m.Read()
	if err != nil || !with.processes[cmd.Process.Pid] || !with.Busy(before, time.Hour) {
		t.Errorf("%+v, %v", with, err)
	}
	var used unix.Rusage
	for begin := int64(0); used.Utime.Nano() < begin+int64(60*time.Millisecond); {
		if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
			t.Fatal(err)
		}
		if begin == 0 {
			begin = used.Utime.Nano()
		}
	}
	if after, err := m.Read(); err != nil || after.cpu <= with.cpu || after.Busy(with, time.Hour) || !after.Busy(with, time.Second) {
		t.Errorf("60 ms of work: %v more, %v", after.cpu-with.cpu, err)
	}
}
