package devtools

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// boxed stands for a box: what listens there is the test's.
type boxed struct {
	address string
	mu      sync.Mutex
	dialled map[uint16]int
}

func (b *boxed) Dial(ctx context.Context, family gate.Family, port uint16) (*net.TCPConn, func(), error) {
	b.mu.Lock()
	if b.dialled == nil {
		b.dialled = map[uint16]int{}
	}
	b.dialled[port]++
	address := b.address
	b.mu.Unlock()
	if address == "" || family != gate.V4 {
		return nil, nil, gate.ErrNobody
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, nil, gate.ErrNobody
	}
	return c.(*net.TCPConn), func() { c.Close() }, nil
}

// times tells how often a port was dialled.
func (b *boxed) times(port int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dialled[uint16(port)]
}

func (b *boxed) listens(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.address = address
}

func serve(t *testing.T, way Way, file *File) *Port {
	t.Helper()
	p, err := Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	p.Serve(way, file, nil)
	return p
}

// Whatever a client does, one port of the box is dialled.
func TestOnePortIsServed(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host, r.URL.Path) }))
	defer site.Close()
	way := &boxed{address: site.Listener.Addr().String()}
	p := serve(t, way, nil)
	at := fmt.Sprintf("127.0.0.1:%d", p.Number)
	resp, err := http.Get("http://" + at + "/json/version")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); string(b) != at+"/json/version" { // byte by byte, the Host too
		t.Errorf("%q", b)
	}
	resp.Body.Close()
	for n, first := range []string{"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: x\r\n\r\n", "\x05\x01\x00"} {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, first)
		gatetest.WaitFor(t, func() bool { return way.times(p.Number) >= n+2 })
		c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		io.Copy(io.Discard, c)
		c.Close()
	}
	p.Close() // nothing is dialled after it
	way.mu.Lock()
	defer way.mu.Unlock()
	if len(way.dialled) != 1 || way.dialled[uint16(p.Number)] != 4 {
		t.Errorf("dialled %v", way.dialled)
	}
}

func TestListenOnATakenPort(t *testing.T) {
	p, err := Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := Listen(p.Number); err == nil || reason.Of(err).Code != reason.PortTaken {
		t.Errorf("%v", err)
	}
	p.Close() // also one that never served, and twice
	again, err := Listen(p.Number)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	(*Port)(nil).Close()
}

func TestCloseEndsConnections(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p := serve(t, &boxed{address: ln.Addr().String()}, nil)
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.Number))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := ln.Accept(); err != nil {
		t.Fatal(err)
	}
	p.Close()
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || gate.Timeout(err) {
		t.Errorf("the connection lives on: %v", err)
	}
}

const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 11 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000   999        0 12 1 0 20 4 30 10 -1
   2: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 13 1 0 20 4 30 10 -1
   3: 0100007F:C351 0100007F:1F90 04 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   4: 0100007F:C352 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     x        0 14 1 0 20 4 30 10 -1
`

func TestOwner(t *testing.T) {
	there := netip.MustParseAddrPort("127.0.0.1:8080")
	for port, want := range map[uint16]int{50000: 1000, 50001: -1, 50002: -1, 50003: -1} {
		uid, ok := owner(strings.NewReader(table), netip.AddrPortFrom(there.Addr(), port), there)
		if ok != (want >= 0) || ok && uid != want {
			t.Errorf("%d: %d, %v, want %d", port, uid, ok, want)
		}
	}
}

// The kernel's own table names us, and nobody once the socket is closed.
func TestOursIsTheKernelsWord(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if !ours(accepted.(*net.TCPConn)) {
		t.Error("our own connection")
	}
	c.Close()
	if ours(accepted.(*net.TCPConn)) {
		t.Error("a connection that nobody holds")
	}
}

func TestSocketPath(t *testing.T) {
	body := func(url string) []byte {
		b, _ := json.Marshal(map[string]string{"webSocketDebuggerUrl": url})
		return b
	}
	const id = "11ba75ba-2867-4b12-a5e7-7c27a114b123"
	if path, err := socketPath(200, body("ws://127.0.0.1:1/devtools/browser/"+id)); err != nil || path != "/devtools/browser/"+id {
		t.Errorf("%q, %v", path, err)
	}
	for _, url := range []string{"", "ws://127.0.0.1:1/", "ws://127.0.0.1:1/devtools/browser/", "ws://h/devtools/browser/x\ny", "ws://h/devtools/browser/../x",
		"ws://h/devtools/browser/" + id + "/", "ws://h/devtools/browser/" + id + "?x", "ws://h/devtools/browser/" + strings.Repeat("a", 65), "ws://h/devtools/page/" + id} {
		if path, err := socketPath(200, body(url)); err == nil {
			t.Errorf("%q gives %q", url, path)
		}
	}
	for _, b := range []string{"", "x", "[]", "null", `{"webSocketDebuggerUrl":7}`} {
		if path, err := socketPath(200, []byte(b)); err == nil {
			t.Errorf("%q gives %q", b, path)
		}
	}
	if _, err := socketPath(404, body("ws://127.0.0.1:1/devtools/browser/"+id)); err == nil {
		t.Error("a 404 is taken")
	}
}

func FuzzSocketPath(f *testing.F) {
	f.Add(`{"webSocketDebuggerUrl":"ws://127.0.0.1:1/devtools/browser/a-1"}`)
	f.Fuzz(func(t *testing.T, body string) {
		path, err := socketPath(200, []byte(body))
		if err == nil && (!strings.HasPrefix(path, "/devtools/browser/") || len(path) > 100 || strings.ContainsAny(path, "\n\r .?#\\")) {
			t.Errorf("%q gives %q", body, path)
		}
	})
}

// The file appears when the browser answers, whole and in Chrome's form.
func TestAnnounce(t *testing.T) {
	var asked sync.WaitGroup
	asked.Add(1)
	var once sync.Once
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		once.Do(asked.Done)
		if r.URL.Path != "/json/version" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		fmt.Fprintf(w, `{"webSocketDebuggerUrl":"ws://%s/devtools/browser/a-1"}`, r.Host)
	}))
	defer site.Close()
	way, profile := &boxed{}, t.TempDir()
	p := serve(t, way, &File{Profile: profile, Folder: profile})
	time.Sleep(100 * time.Millisecond)
	if entries, _ := os.ReadDir(profile); len(entries) != 0 {
		t.Errorf("before anybody listens there is %v", entries)
	}
	way.listens(site.Listener.Addr().String())
	asked.Wait()
	want := fmt.Sprintf("%d\n/devtools/browser/a-1", p.Number)
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if b, err := os.ReadFile(filepath.Join(profile, fileName)); err == nil {
			if string(b) != want {
				t.Errorf("%q, want %q", b, want)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no file")
		}
	}
	p.Close()
	if entries, _ := os.ReadDir(profile); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

// A box can write in the profile: what it planted there is never followed.
func TestThePlantedFile(t *testing.T) {
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	untouched := func(what string) {
		t.Helper()
		if b, err := os.ReadFile(victim); err != nil || string(b) != "mine" {
			t.Errorf("%s: the victim is %q, %v", what, b, err)
		}
		if entries, _ := os.ReadDir(outside); len(entries) != 1 {
			t.Errorf("%s: outside there is %v", what, entries)
		}
	}
	if err := os.WriteFile(victim, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{fileName, fileName + ".botbox"} {
		profile := t.TempDir()
		if err := os.Symlink(victim, filepath.Join(profile, name)); err != nil {
			t.Fatal(err)
		}
		f := &File{Profile: profile, Folder: profile}
		if err := f.write("1\n/x"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b, _ := os.ReadFile(filepath.Join(profile, fileName)); string(b) != "1\n/x" {
			t.Errorf("%s: %q", name, b)
		}
		untouched(name)
	}
	profile := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(profile, "sub")); err != nil {
		t.Fatal(err)
	}
	for _, f := range []File{{profile, filepath.Join(profile, "sub")}, {filepath.Join(profile, "sub"), filepath.Join(profile, "sub")}, {profile, outside}, {profile, filepath.Join(profile, "none")}} {
		if err := f.write("1\n/x"); err == nil {
			t.Errorf("%+v was written", f)
		}
		untouched(f.Folder)
	}
	if err := os.MkdirAll(filepath.Join(profile, "real", fileName), 0o700); err != nil {
		t.Fatal(err)
	}
	f := File{profile, filepath.Join(profile, "real")}
	if err := f.write("1\n/x"); err == nil { // a folder in its place is not replaced
		t.Error("over a folder")
	}
	if entries, _ := os.ReadDir(f.Folder); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}
