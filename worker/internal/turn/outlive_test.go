package turn

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/spec"
	"github.com/openmausbot/botbox/worker/internal/vault"
)

// survivor is a box as a dead worker leaves it: a process, a status pipe, a
// listener of the egress gate and a record.
type survivor struct {
	cmd    *exec.Cmd
	status *os.File // bubblewrap's end
	addr   string
	record record
	vault.Deposit
}

func leave(t *testing.T, r *Runner, change func(*record)) *survivor {
	t.Helper()
	l := &survivor{cmd: exec.Command("sleep", "600")}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.cmd.Process.Kill(); l.cmd.Wait() })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	l.addr = listener.Addr().String()
	port := listener.Addr().(*net.TCPAddr).Port
	listens, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	l.status = os.NewFile(uintptr(pipe[1]), "status")
	t.Cleanup(func() { l.status.Close() })
	l.record = record{
		Build: wire.Build, ID: "box_old", Since: time.Now(), Ports: box.Ports{Egress: port, Broker: 1, Harness: 2, SOCKS: 3},
		Spec:  spec.Spec{V: 1, Engine: "none", Net: spec.Net{Mode: "gated", Egress: spec.Egress{MaxBytes: 1000}}},
		Facts: box.Facts{Engine: l.cmd.Process.Pid, Init: l.cmd.Process.Pid, Listen: []int{port}}, Raw: []string{"XAI_API_KEY"},
	}
	change(&l.record)
	b, err := json.Marshal(l.record)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := box.Sealed("record", b)
	if err != nil {
		t.Fatal(err)
	}
	l.Deposit = vault.Deposit{Box: "key", Kinds: "ppsrl", Text: `{"egress":900}`,
		Files: []*os.File{pidfd(t, l.cmd), pidfd(t, l.cmd), os.NewFile(uintptr(pipe[0]), "status"), sealed, listens}}
	return l
}

func pidfd(t *testing.T, cmd *exec.Cmd) *os.File {
	t.Helper()
	fd, err := unix.PidfdOpen(cmd.Process.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "pidfd")
}

func TestABoxIsTakenBackWithAllThatItHad(t *testing.T) {
	r, _ := newRunner(t)
	l := leave(t, r, func(*record) {})
	r.TakeBack([]vault.Deposit{l.Deposit})
	old, err := r.Find("box_old")
	if err != nil {
		t.Fatal(err)
	}
	if old.Pid() != l.cmd.Process.Pid || old.egress.Budget.Used() != 900 || strings.Join(r.Unbrokered(), " ") != "XAI_API_KEY" {
		t.Errorf("pid %d, %d bytes used, unbrokered %v", old.Pid(), old.egress.Budget.Used(), r.Unbrokered())
	}
	conn, err := net.Dial("tcp", l.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n")
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	head := make([]byte, 12)
	if n, err := conn.Read(head); err != nil || string(head[:n]) != "HTTP/1.1 403" {
		t.Errorf("the gate said %q, %v", head[:n], err)
	}
	fmt.Fprintf(l.status, `{"exit-code": 7}`+"\n")
	l.cmd.Process.Kill()
	select {
	case <-old.Ended():
	case <-time.After(10 * time.Second):
		t.Fatal("its end was not noticed")
	}
	if e := old.Ending(); e.Code != 7 || e.End != EndExited {
		t.Errorf("%+v", e)
	}
	if _, err := net.Dial("tcp", l.addr); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("its listener is still open: %v", err)
	}
}

// What nobody can hold to its limits is killed, and its files are closed.
func TestABoxThatCannotBeTakenBackIsKilled(t *testing.T) {
	for name, change := range map[string]func(*record){
		"another build":         func(r *record) { r.Build = "other" },
		"no name":               func(r *record) { r.ID = "" },
		"no process":            func(r *record) { r.Facts.Engine = 0 },
		"a malformed host":      func(r *record) { r.Spec.Net.Egress.Allow = &[]string{"*"} },
		"another port":          func(r *record) { r.Facts.Listen = []int{1} },
		"a port of none":        func(r *record) { r.Facts.Listen = []int{4} },
		"two listeners":         func(r *record) { r.Facts.Listen = append(r.Facts.Listen, 1) },
		"a disk not there":      func(r *record) { r.Facts.Disks = []string{"/no-such-folder"} },
		"hosts of another boot": func(r *record) { r.Hosts = sealedHosts(t, 2, r.ID) },
		"hosts of another box":  func(r *record) { r.Hosts = sealedHosts(t, 1, "box_other") },
		"hosts not sealed":      func(r *record) { r.Hosts = identity(t) },
	} {
		r, _ := newRunner(t)
		before := openFiles(t)
		l := leave(t, r, change)
		r.TakeBack([]vault.Deposit{l.Deposit})
		l.status.Close()
		if err := l.cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("%s: it ended with %v", name, err)
		}
		if n := openFiles(t); len(r.Running()) != 0 || n != before {
			t.Errorf("%s: %d boxes, %d files, %d before", name, len(r.Running()), n, before)
		}
	}
	r, _ := newRunner(t) // files that are no box's kill nothing: whose they are is not known
	l := leave(t, r, func(*record) {})
	l.Deposit.Kinds = "lsrpp"
	before := openFiles(t)
	r.TakeBack([]vault.Deposit{l.Deposit})
	if n := openFiles(t); n != before-5 {
		t.Errorf("%d files are left open", n-before+5)
	}
}

func TestABoxThatEndedUnseen(t *testing.T) {
	r, _ := newRunner(t)
	before := openFiles(t)
	l := leave(t, r, func(*record) {})
	l.cmd.Process.Kill()
	l.cmd.Wait()
	l.status.Close()
	r.TakeBack([]vault.Deposit{l.Deposit})
	if e, ok := r.Ended("box_old"); !ok || e.End != EndUnseen || e.Code != -1 || len(r.Running()) != 0 || openFiles(t) != before {
		t.Errorf("%+v, %d boxes", e, len(r.Running()))
	}
	if gone := r.Orphans([]string{"box_old", "box_other"}); len(gone) != 2 {
		t.Errorf("%v", gone)
	}
	if e, ok := r.Ended("box_other"); !ok || e.End != EndUnseen {
		t.Errorf("a box of which only a grant was left: %+v", e)
	}
}

// The record holds nothing of the environment, the arguments or the keys.
func TestTheRecordHoldsNoSecret(t *testing.T) {
	s := plain(t)
	s.Argv = append(s.Argv, "canary-prompt")
	s.Env = map[string]spec.Value{"ANTHROPIC_API_KEY": {Ref: "anthropic"}}
	s.Broker.MCP = []spec.MCP{{Name: "m", URL: "http://canary"}}
	s.Net.Egress.Deny = []string{"not.example"}
	b, err := json.Marshal(record{Build: wire.Build, ID: "b", Spec: kept(s), Facts: box.Facts{Engine: 2, Init: 2}})
	if err != nil || strings.Contains(string(b), "canary") || strings.Contains(string(b), "ANTHROPIC") {
		t.Errorf("%v: %s", err, b)
	}
	back, _, err := parseRecord(b, wire.NoNote)
	if err != nil || len(back.Spec.Net.Egress.Deny) != 1 {
		t.Errorf("%v: %+v", err, back)
	}
}

func FuzzParseRecord(f *testing.F) {
	b, _ := json.Marshal(record{Build: wire.Build, ID: "b", Facts: box.Facts{Engine: 2, Init: 2}})
	f.Add(b, `{"egress":1,"grants":{"openai":{"bytes":1}}}`)
	f.Add([]byte("{}"), wire.NoNote)
	f.Fuzz(func(t *testing.T, b []byte, text string) {
		r, s, err := parseRecord(b, text)
		if err == nil && (r.ID == "" || r.Build != wire.Build || r.Facts.Engine <= 1) {
			t.Errorf("taken: %+v", r)
		}
		_ = s.Grants[""] == broker.Used{}
	})
}
