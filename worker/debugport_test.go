package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/rig"
)

// overPort drives a browser over its debugging port. The two pipes speak as
// --remote-debugging-pipe does, with a web socket behind them.
func overPort(t *testing.T, port, path string) *pipe {
	t.Helper()
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 16)
	rand.Read(key)
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n",
		path, port, base64.StdEncoding.EncodeToString(key))
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("the browser's socket: %+v, %v", resp, err)
	}
	commands, to, err1 := os.Pipe()
	from, answers, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	go func() { // what is written, NUL by NUL, becomes frames
		for r := bufio.NewReader(commands); ; {
			message, err := r.ReadBytes(0)
			if err != nil {
				return
			}
			conn.Write(textFrame(message[:len(message)-1]))
		}
	}()
	go func() {
		defer answers.Close()
		for {
			message, err := readFrame(br)
			if err != nil {
				return
			}
			answers.Write(append(message, 0))
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		for _, f := range []*os.File{commands, to, from} {
			f.Close()
		}
	})
	return &pipe{t: t, to: to, answers: bufio.NewReader(from)}
}

// textFrame is one whole message of a client, masked as RFC 6455 wants it.
func textFrame(message []byte) []byte {
	b := []byte{0x81, 0x80 | 127}
	b = binary.BigEndian.AppendUint64(b, uint64(len(message)))
	return append(append(b, 0, 0, 0, 0), message...) // a mask of zeros changes nothing
}

func readFrame(br *bufio.Reader) ([]byte, error) {
	var all []byte
	for {
		head := make([]byte, 2)
		if _, err := io.ReadFull(br, head); err != nil {
			return nil, err
		}
		size := uint64(head[1] & 0x7f)
		if more := map[uint64]int{126: 2, 127: 8}[size]; more > 0 {
			long := make([]byte, 8)
			if _, err := io.ReadFull(br, long[8-more:]); err != nil {
				return nil, err
			}
			size = binary.BigEndian.Uint64(long)
		}
		part := make([]byte, size)
		if _, err := io.ReadFull(br, part); err != nil {
			return nil, err
		}
		if all = append(all, part...); head[0]&0x80 != 0 {
			return all, nil
		}
	}
}

// freePort is one that nobody has, for a moment at least.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

// announced starts a browser and gives the port and path that it tells.
func announced(t *testing.T, cmd *exec.Cmd) (port, path string) {
	t.Helper()
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	t.Cleanup(func() { late.Stop(); cmd.Process.Kill(); cmd.Wait() })
	var said bytes.Buffer
	for lines := bufio.NewScanner(errs); lines.Scan(); {
		fmt.Fprintln(&said, lines.Text())
		if rest, ok := strings.CutPrefix(lines.Text(), "DevTools listening on ws://127.0.0.1:"); ok {
			port, path, _ = strings.Cut(rest, "/")
			go io.Copy(io.Discard, errs)
			return port, "/" + path
		}
	}
	t.Fatalf("the browser tells no port: %s", &said)
	return "", ""
}

// A real Chromium, driven over its debugging port from outside its box, while
// another box does not get there.
func TestTheDebuggingPort(t *testing.T) {
	browserWays(t, func(t *testing.T, p *place, browser []string) {
		port := freePort(t)
		args := append(with(browser, only()...), append([]string{"--debug-port", "--"}, chromium(t, "--remote-debugging-port="+port)...)...)
		cmd := p.botbox(nil, args...)
		told, path := announced(t, cmd)
		if told != port {
			t.Fatalf("the browser listens on %s, not %s", told, port)
		}
		resp, err := http.Get("http://127.0.0.1:" + port + "/json/version")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(b), "ws://127.0.0.1:"+port+path) {
			t.Errorf("/json/version: %s", b)
		}
		chrome := overPort(t, port, path)
		chrome.open(hello)
		var text string
		rig.Eventually(t, 20*time.Second, "the page's script ran", func() bool {
			chrome.eval("document.body ? document.body.innerText : ''", &text)
			return text == "script ran"
		})
		screenshot(t, chrome)
		second := overPort(t, port, path) // several at once
		second.do("Browser.getVersion", map[string]any{}, nil)
		chrome.eval("'x'.repeat(5000000).length", new(int))
		run := append([]string{"run"}, browser[1:]...)
		out := rig.Run(t, p.botbox(nil, with(run, "--", "sh", "-c", `curl -s -o /dev/null -w '%{http_code} ' "http://127.0.0.1:$1/json/version"
			curl -s -o /dev/null -w '%{http_code}' --noproxy '' -x "$http_proxy" "http://127.0.0.1:$1/json/version"`, "sh", port)...))
		if out.Stdout != "000 403" {
			t.Errorf("another box: %+v", out)
		}
		chrome.do("Browser.getVersion", map[string]any{}, nil) // positive control
		cmd.Process.Kill()
		rig.Eventually(t, 2*time.Second, "the port is closed", func() bool {
			c, err := net.Dial("tcp", "127.0.0.1:"+port)
			if err == nil {
				c.Close()
			}
			return err != nil
		})
	})
}

// A daemon that leaves the choice to Chrome looks for DevToolsActivePort in the
// profile, and connects the moment that it sees it.
func TestTheDebuggingPortOfADaemonsChoice(t *testing.T) {
	browserWays(t, func(t *testing.T, p *place, browser []string) {
		profile, launcher := filepath.Join(p.home, "profile"), filepath.Join(p.top, "run/chrome")
		rig.Write(t, filepath.Join(profile, "First Run"), "")
		rig.Give(t, profile)
		write := with(browser, append(only(), "--debug-port", "--profile", profile, "--write-launcher", launcher, "--", chromium(t)[0])...)
		if out := rig.Run(t, p.botbox(nil, write...)); out.Code != 0 {
			t.Fatalf("%+v", out)
		}
		if out := rig.Run(t, rig.Command(t, p.top, p.env, launcher, "--version")); out.Code != 0 || !strings.Contains(out.Stdout, "Chromium") {
			t.Errorf("without a port: %+v", out)
		}
		for range 3 {
			active := filepath.Join(profile, "DevToolsActivePort")
			os.Remove(active)
			words := append(chromium(t, "--remote-debugging-port=0", "--user-data-dir="+profile)[1:], "about:blank")
			cmd := rig.Command(t, p.top, p.env, append([]string{launcher}, words...)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var b []byte
			rig.Eventually(t, 30*time.Second, "DevToolsActivePort is there", func() bool {
				b, _ = os.ReadFile(active)
				return len(b) > 0
			})
			port, path, _ := strings.Cut(string(b), "\n")
			chrome := overPort(t, port, path)
			chrome.do("Browser.getVersion", map[string]any{}, nil)
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
}

// twoPorts is no browser: it listens on two ports, and the flag names the first.
const twoPorts = `import socket, sys, threading
def serve(port):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", int(port))); s.listen(64)
    while True:
        c, _ = s.accept()
        threading.Thread(target=lambda c: (c.sendall(b"port " + port.encode() + b"\n"), c.recv(1), c.close()), args=(c,)).start()
for port in sys.argv[1:3]: threading.Thread(target=serve, args=(port,)).start()
print("up", flush=True)
`

func greet(port string) string {
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return "refused"
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	b, _ := io.ReadAll(io.LimitReader(c, int64(len("port 12345\n"))))
	return strings.TrimSpace(string(b))
}

// Only the port that the command line names is served, to this user and root,
// and as many connections as there are do not add up.
func TestWhoReachesTheDebuggingPort(t *testing.T) {
	p := newPlace(t)
	worker := p.settled()
	before := p.footprint(worker)
	named, other := freePort(t), freePort(t)
	cmd, out := start(t, p.botbox(nil, "browser", "--debug-port", "--", "python3", "-c", twoPorts, named, other, "--remote-debugging-port="+named))
	line(t, out)
	rig.Eventually(t, 5*time.Second, "the port answers", func() bool { return greet(named) == "port "+named })
	if got := greet(other); got != "refused" {
		t.Errorf("another port of the box: %q", got)
	}
	for range 200 {
		if got := greet(named); got != "port "+named {
			t.Fatalf("%q", got)
		}
	}
	for uid, want := range map[uint32]string{0: "port " + named, 65534: ""} {
		c := exec.Command("/usr/bin/python3", "-c", `import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
try: sys.stdout.write(s.recv(64).decode().strip())
except OSError: pass`, named)
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if b, err := c.CombinedOutput(); err != nil || string(b) != want {
			t.Errorf("uid %d: %q, %v", uid, b, err)
		}
	}
	busy := p.botbox(nil, "browser", "--debug-port", "--", "true", "--remote-debugging-port="+named)
	if got := rig.Run(t, busy); got.Code != 111 || !strings.Contains(got.Stderr, "reason: port_taken") {
		t.Errorf("a port that is taken: %+v", got)
	}
	cmd.Process.Kill()
	cmd.Wait()
	rig.Eventually(t, time.Second, "the port is closed", func() bool { return greet(named) == "refused" })
	p.shrinksTo(worker, before)
}

func TestDebuggingPortsThatAreRefused(t *testing.T) {
	p := newPlace(t)
	run := func(args ...string) rig.Output {
		return rig.Run(t, p.botbox(nil, append([]string{"browser", "--standalone"}, args...)...))
	}
	for _, port := range []string{"", "x", "80", "1023", "1080", "65536", "-1", "+9222", "09222", "9222x"} {
		if out := run("--debug-port", "--", "true", "--remote-debugging-port="+port); out.Code != 100 || !strings.Contains(out.Stderr, "reason: bad_spec") {
			t.Errorf("%q: %+v", port, out)
		}
	}
	if out := run("--debug-port", "--net", "shared", "--", "true"); out.Code != 100 || !strings.Contains(out.Stderr, "reason: bad_spec") {
		t.Errorf("shared: %+v", out)
	}
	if out := p.turn(`"browser":{"debug_port":true}`, "true"); out.Code != 100 || !strings.Contains(out.Stderr, "reason: bad_spec") {
		t.Errorf("an engine: %+v", out)
	}
	if out := run("--", "true", "--remote-debugging-port=9222"); out.Code != 0 || !strings.Contains(out.Stderr, "--debug-port") {
		t.Errorf("unasked, it is only said: %+v", out)
	}
	if out := run("--debug-port", "--", "echo", "-remote-debugging-port=0", "--", "--remote-debugging-port=0"); out.Code != 0 ||
		!strings.HasPrefix(out.Stdout, "--remote-debugging-port=") || strings.HasPrefix(out.Stdout, "--remote-debugging-port=0 ") || !strings.HasSuffix(out.Stdout, " -- --remote-debugging-port=0\n") {
		t.Errorf("the number is put in: %+v", out)
	}
}

// A daemon may start its browser from a thread that ends (agent-browser's does).
// A box dies with that thread; what a launcher started lives on, and dies when
// the launcher is killed.
func TestALauncherOutlivesTheThreadThatStartedIt(t *testing.T) {
	const script = "echo up; sleep 1; echo lived; exit 7"
	browserWays(t, func(t *testing.T, p *place, browser []string) {
		fromAThreadThatEnds := func(cmd *exec.Cmd) rig.Output {
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			said := bufio.NewReader(out)
			started := make(chan error)
			go onAThreadThatEnds(func() {
				err := cmd.Start()
				if err == nil {
					_, err = said.ReadString('\n') // the engine runs
				}
				started <- err
			})
			if err := <-started; err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(said)
			return rig.Output{Code: rig.Code(cmd.Wait()), Stdout: string(rest)}
		}
		launcher := filepath.Join(p.top, "run/chrome")
		if out := rig.Run(t, p.botbox(nil, with(browser, "--write-launcher", launcher, "--", "sh", "-c", script)...)); out.Code != 0 {
			t.Fatalf("%+v", out)
		}
		if out := fromAThreadThatEnds(rig.Command(t, p.top, p.env, launcher)); out.Code != 7 || out.Stdout != "lived\n" {
			t.Errorf("%+v", out)
		}
		if len(browser) == 1 { // leased: the positive control, where the thread matters
			if out := fromAThreadThatEnds(p.botbox(nil, with(browser, "--", "sh", "-c", script)...)); out.Code == 7 {
				t.Errorf("without a launcher: %+v", out)
			}
		}
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			m := mark(t)
			if out := rig.Run(t, p.botbox(nil, with(browser, "--write-launcher", launcher, "--", "sh", "-c", "echo up; sleep 300; : "+m)...)); out.Code != 0 {
				t.Fatalf("%+v", out)
			}
			cmd, out := start(t, rig.Command(t, p.top, p.env, launcher))
			line(t, out)
			cmd.Process.Signal(sig)
			if code := rig.Code(cmd.Wait()); code != 128+int(sig) {
				t.Errorf("%v: %d", sig, code)
			}
			rig.Eventually(t, 2*time.Second, "nothing of it lives", func() bool { return len(marked(t, m)) == 0 })
		}
	})
}

// onAThreadThatEnds ends its thread, which the Go runtime does with every locked
// one but the process's first.
func onAThreadThatEnds(do func()) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		do()
		return
	}
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() { defer close(done); onAThreadThatEnds(do) }()
	<-done
}
