package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// chromium gives a command line without what would only make noise on a
// machine that has no internet.
func chromium(t *testing.T, more ...string) []string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		rig.Missing(t, "there is no chromium (testbed/setup.sh test installs it)")
	}
	return append([]string{path, "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync"}, more...)
}

// browserWays runs a test of browser boxes through a worker and without one.
func browserWays(t *testing.T, do func(t *testing.T, p *place, browser []string)) {
	ways(t, func(t *testing.T, p *place, run []string) { do(t, p, append([]string{"browser"}, run[1:]...)) })
}

// only keeps the gate from looking up the hosts of Chrome's makers, which it
// asks for at every start: what is not named is refused without a packet.
func only(hosts ...string) (flags []string) {
	for _, h := range append(hosts, "nothing.invalid") {
		flags = append(flags, "--allow-host", h)
	}
	return flags
}

const hello = "data:text/html,<p id=a>no</p><script>document.getElementById('a').textContent='script '+'ran'</script>"

// Chrome's own sandbox needs nested namespaces: an engine has none, a browser
// has Chrome's and no other.
func TestNestedNamespaces(t *testing.T) {
	const script = `for ns in user pid net; do unshare -U --$ns true && echo "$ns yes"; done
		for ns in mount ipc uts cgroup; do unshare -U --$ns true && echo "$ns yes"; done
		unshare -Ur mount -t tmpfs tmpfs /tmp && echo "mount yes"; true`
	ways(t, func(t *testing.T, p *place, run []string) {
		if out := rig.Run(t, p.botbox(nil, with(run, "--", "sh", "-c", script)...)); out.Stdout != "" || out.Code != 0 {
			t.Errorf("engine: %+v", out)
		}
	})
	browserWays(t, func(t *testing.T, p *place, browser []string) {
		if out := rig.Run(t, p.botbox(nil, with(browser, "--", "sh", "-c", script)...)); out.Stdout != "user yes\npid yes\nnet yes\n" {
			t.Errorf("browser: %+v", out)
		}
	})
}

func TestChromiumStartsInItsOwnKindOfBoxOnly(t *testing.T) {
	browserWays(t, func(t *testing.T, p *place, browser []string) {
		chrome := append(append(only(), "--"), chromium(t, "--dump-dom", hello)...)
		out := rig.Run(t, p.botbox(nil, with(browser, chrome...)...))
		if out.Code != 0 || !strings.Contains(out.Stdout, "script ran") {
			t.Errorf("browser: %+v", out)
		}
		engine := append([]string{"run"}, browser[1:]...)
		out = rig.Run(t, p.botbox(nil, with(engine, chrome...)...))
		if out.Code == 0 || strings.Contains(out.Stdout, "script ran") || !strings.Contains(out.Stderr, "sandbox") {
			t.Errorf("engine: %+v", out)
		}
	})
}

// A browser box has one port, no proxy in its environment, no key and no
// folder but its profile.
func TestWhatABrowserBoxHolds(t *testing.T) {
	browserWays(t, func(t *testing.T, p *place, browser []string) {
		mine, others := filepath.Join(p.home, "profiles/a"), filepath.Join(p.home, "profiles/b")
		rig.Write(t, filepath.Join(mine, "Cookies"), "mine")
		rig.Write(t, filepath.Join(others, "Cookies"), "canary")
		rig.Give(t, mine)
		env := []string{"ANTHROPIC_API_KEY=sk-canary", "GH_TOKEN=canary", "FOO=canary"}
		out := rig.Run(t, p.botbox(env, with(browser, "--bot", "b-1", "--profile", mine, "--json", "--", "sh", "-c", `
			env | grep -i -e proxy -e canary -e harness
			awk '$4 == "0A" {print $2}' /proc/net/tcp /proc/net/tcp6
			cat "$1"/Cookies; echo new >"$1"/Cookies
			ls -A "$HOME/profiles"
			df --output=size -BM /dev/shm | tail -1`, "sh", mine)...))
		want := "0100007F:0438\nminea\n1024M"
		if got := strings.ReplaceAll(out.Stdout, " ", ""); strings.TrimSpace(got) != want {
			t.Errorf("got %q, want %q; %s", got, want, out.Stderr)
		}
		if !strings.Contains(out.Stderr, `"nested_sandbox":true`) || !strings.Contains(out.Stderr, `"GH_TOKEN"`) || strings.Contains(out.Stderr, "canary") {
			t.Errorf("the answer: %s", out.Stderr)
		}
		if b, _ := os.ReadFile(filepath.Join(mine, "Cookies")); string(b) != "new\n" {
			t.Errorf("the profile outside: %q", b)
		}
		for _, dir := range []string{p.home, filepath.Join(p.home, ".openmausbot"), "/run", "/no/such/profile"} {
			if out := rig.Run(t, p.botbox(nil, with(browser, "--profile", dir, "--", "true")...)); out.Code != 100 || !strings.Contains(out.Stderr, "reason: path_refused") {
				t.Errorf("the profile %s: %+v", dir, out)
			}
		}
	})
}

// shared is there by name, for a browser only, and is never silent.
func TestSharedNetwork(t *testing.T) {
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	browserWays(t, func(t *testing.T, p *place, browser []string) {
		for net, shares := range map[string]bool{"shared": true, "gated": false, "none": false} {
			out := rig.Run(t, p.botbox(nil, with(browser, "--net", net, "--json", "--", "sh", "-c", "readlink /proc/self/ns/net")...))
			if (out.Stdout == here+"\n") != shares || strings.Contains(out.Stderr, "net.mode shared:") != shares {
				t.Errorf("%s: %+v", net, out)
			}
		}
		run := append([]string{"run"}, browser[1:]...)
		if out := rig.Run(t, p.botbox(nil, with(run, "--net", "shared", "--", "true")...)); out.Code != 100 || !strings.Contains(out.Stderr, "reason: bad_spec") {
			t.Errorf("an engine: %+v", out)
		}
	})
	p := newPlace(t)
	p.serve()
	report := func() string { return rig.Run(t, p.botbox(nil, "report", "--json")).Stdout }
	if strings.Contains(report(), "net.mode shared") {
		t.Error("the report warns of no box")
	}
	cmd, out := start(t, p.botbox(nil, "browser", "--net", "shared", "--", "sh", "-c", "echo up; exec sleep 300", "--"))
	line(t, out)
	if !strings.Contains(report(), "net.mode shared") {
		t.Error("the report does not warn")
	}
	cmd.Process.Kill()
}

// page is the fixture: it tries every way past the gate that a page has.
const page = `<!doctype html><title>fixture</title><p id=a>no script</p><script>
document.getElementById('a').textContent = 'script ran';` + tries + `</script>`

const tries = `
async function reach(url) {
	try { await fetch(url, {mode: 'no-cors', signal: AbortSignal.timeout(20000)}); return 'reached' } catch (e) { return e.name }
}
function socket(url) {
	return new Promise(done => {
		const s = new WebSocket(url); s.onopen = () => done('reached'); s.onerror = () => done('refused')
	})
}
async function candidates(stun) {
	const pc = new RTCPeerConnection({iceServers: [{urls: stun}]}), found = [];
	pc.createDataChannel('x');
	const done = new Promise(d => { pc.onicecandidate = e => e.candidate ? found.push(e.candidate.candidate) : d() });
	await pc.setLocalDescription(await pc.createOffer());
	await Promise.race([done, new Promise(d => setTimeout(d, 3000))]); // without UDP, gathering may never end
	return found
}
`

// A page in a real Chromium, its own sandbox on, driven over the debugging
// pipe: what the operator excepted loads, the rest of the machine is refused
// by the gate, and nothing goes around it.
func TestAPageInABrowserBox(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, page)
	}))
	defer site.Close()
	secret := newFixture(t)
	udp, packets := stun(t)
	except := "OMB_EGRESS_EXCEPT=" + strings.TrimPrefix(site.URL, "http://")
	p := newPlace(t)
	worker := p.serve(except)
	hosts := []string{"127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.1", "metadata.google.internal"}
	args := append([]string{"browser", "--bot", "b-1", "--debug-pipe"}, only(hosts...)...)
	args = append(append(args, "--"), chromium(t, "--no-sandbox", "--proxy-server=direct://", "--remote-debugging-pipe")...)
	chrome := drive(t, p.botbox([]string{except}, args...))
	chrome.open(site.URL)
	text := func() (text string) { chrome.eval("document.body ? document.body.innerText : ''", &text); return text }
	rig.Eventually(t, 20*time.Second, "the page's script ran", func() bool { return strings.Contains(text(), "script ran") })
	screenshot(t, chrome)
	for _, host := range append(hosts[3:], "127.0.0.1:"+secret.port(), "localhost:"+secret.port(), "[::1]:"+secret.port(), "127.0.0.1:1080") {
		var got string
		if chrome.eval(fmt.Sprintf("reach('http://%s/')", host), &got); got != "TypeError" {
			t.Errorf("http://%s: %s", host, got)
		}
	}
	var got string
	if chrome.eval(fmt.Sprintf("socket('ws://127.0.0.1:%s/')", secret.port()), &got); got != "refused" {
		t.Errorf("a web socket: %s", got)
	}
	if chrome.eval(fmt.Sprintf("reach('%s')", site.URL), &got); got != "reached" {
		t.Errorf("positive control: %s", got)
	}
	var found []string
	send(t, udp) // positive control: the port counts
	rig.Eventually(t, 10*time.Second, "a datagram was counted", func() bool { return packets.Swap(0) == 1 })
	if chrome.eval(fmt.Sprintf("candidates('stun:127.0.0.1:%d')", udp), &found); strings.Contains(fmt.Sprint(found), " udp ") {
		t.Errorf("WebRTC would send UDP past the proxy: %q", found)
	}
	if n := secret.hits.Load(); n != 0 || packets.Load() != 0 {
		t.Errorf("another server of this machine had %d requests and %d packets", n, packets.Load())
	}
	chrome.open("chrome://sandbox")
	rig.Eventually(t, 20*time.Second, "Chrome calls itself sandboxed", func() bool { return strings.Contains(text(), "You are adequately sandboxed") })
	if !strings.Contains(text(), "Namespace") {
		t.Errorf("of its own sandbox Chrome says: %s", text())
	}
	chrome.session = ""
	chrome.do("Browser.close", nil, nil)
	worker.Process.Signal(syscall.SIGTERM)
	worker.Wait()
	log := worker.Stdout.(*bytes.Buffer).String()
	for host, class := range map[string]string{
		"127.0.0.1": "loopback", "localhost": "name", "::1": "loopback",
		"169.254.169.254": "metadata", "10.0.0.1": "private", "metadata.google.internal": "name",
	} {
		if !regexp.MustCompile("method=socks host=" + regexp.QuoteMeta(host) + " port=[0-9]+ class=" + class + " status=2").MatchString(log) {
			t.Errorf("the gate's log has no refusal of %s as %s", host, class)
		}
	}
}

// stun counts the datagrams that reach a port of this machine.
func stun(t *testing.T) (port int, packets *atomic.Int64) {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	packets = &atomic.Int64{}
	go func() {
		for buf := make([]byte, 2048); ; packets.Add(1) {
			if _, _, err := conn.ReadFrom(buf); err != nil {
				return
			}
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).Port, packets
}

func send(t *testing.T, port int) {
	t.Helper()
	conn, err := net.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "x")
}

// A daemon is given the path of one executable, and appends its own words.
func TestTheLauncher(t *testing.T) {
	browserWays(t, func(t *testing.T, p *place, browser []string) {
		profile, launcher := filepath.Join(p.home, "it's a profile"), filepath.Join(p.top, "run/chrome")
		rig.Write(t, filepath.Join(profile, "First Run"), "")
		rig.Give(t, profile)
		write := with(browser, append(only(), "--bot", "b-1", "--profile", profile, "--write-launcher", launcher, "--", chromium(t)[0])...)
		for range 2 { // over its own is fine
			if out := rig.Run(t, p.botbox(nil, write...)); out.Code != 0 || out.Stdout+out.Stderr != "" {
				t.Fatalf("%+v", out)
			}
		}
		out := rig.Run(t, rig.Command(t, p.top, p.env, append([]string{launcher}, chromium(t, "--dump-dom", hello)[1:]...)...))
		if out.Code != 0 || !strings.Contains(out.Stdout, "script ran") {
			t.Errorf("%+v", out)
		}
		if _, err := os.Stat(filepath.Join(profile, "Local State")); err != nil {
			t.Errorf("nothing of the browser is in its profile: %v", err)
		}
		rig.Write(t, launcher, "#!/bin/sh\nsomebody else's\n")
		if out := rig.Run(t, p.botbox(nil, write...)); out.Code != 100 || !strings.Contains(out.Stderr, "reason: not-yours") {
			t.Errorf("over a file of somebody else's: %+v", out)
		}
		wrong := with(browser, "--net", "host", "--write-launcher", filepath.Join(p.top, "run/other"), "--", "chromium")
		if out := rig.Run(t, p.botbox(nil, wrong...)); out.Code != 100 || !strings.Contains(out.Stderr, "reason: bad_spec") {
			t.Errorf("a launcher that could never run: %+v", out)
		}
		if left, _ := filepath.Glob(filepath.Join(p.top, "run/.launcher*")); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// Only pipes and socket pairs pass into a box, and only into a browser's.
func TestTheDebuggingPipe(t *testing.T) {
	browserWays(t, func(t *testing.T, p *place, browser []string) {
		args := with(browser, "--debug-pipe", "--", "sh", "-c", "read -r word <&3; echo got $word >&4; ls /proc/self/fd >&4")
		chrome := drive(t, p.botbox(nil, args...))
		fmt.Fprintln(chrome.to, "ping")
		// The last is the folder that ls reads. The end comes when the box has
		// ended: nobody else holds the pipe.
		if got, err := io.ReadAll(chrome.answers); string(got) != "got ping\n0\n1\n2\n3\n4\n5\n" {
			t.Errorf("%q, %v", got, err)
		}
		file, err := os.Open("/etc/passwd")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		agent, pair := connections(t, filepath.Join(p.run, "agent"))
		for name, c := range map[string]struct {
			files []*os.File
			code  int
		}{"no pipe": {nil, 100}, "files": {[]*os.File{file, file}, 100}, "an agent's socket": {[]*os.File{agent, agent}, 100}, "a socket pair": {[]*os.File{pair, pair}, 0}} {
			cmd := p.botbox(nil, with(browser, "--debug-pipe", "--", "sh", "-c", "true")...)
			cmd.ExtraFiles = c.files
			if out := rig.Run(t, cmd); out.Code != c.code || strings.Contains(out.Stderr, "descriptor 3 is neither") != (c.code != 0) {
				t.Errorf("%s: %+v", name, out)
			}
		}
	})
}

// connections gives a connection to a socket that has a name, as an agent's
// has, and one end of a pair.
func connections(t *testing.T, path string) (named, pair *os.File) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if named, err = c.(*net.UnixConn).File(); err != nil {
		t.Fatal(err)
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	pair = os.NewFile(uintptr(fds[0]), "pair")
	other := os.NewFile(uintptr(fds[1]), "pair")
	t.Cleanup(func() {
		for _, closer := range []io.Closer{l, c, named, pair, other} {
			closer.Close()
		}
	})
	return named, pair
}

// A browser that was killed leaves its lock in the profile, which names a
// process number that the next box has, too.
func TestAProfileOutlivesItsBrowser(t *testing.T) {
	p := newPlace(t)
	profile := filepath.Join(p.home, "profile")
	rig.Write(t, filepath.Join(profile, "First Run"), "")
	rig.Give(t, profile)
	args := append(append([]string{"browser", "--standalone", "--profile", profile}, only()...), "--debug-pipe", "--")
	args = append(args, chromium(t, "--remote-debugging-pipe")...)
	for range 2 {
		cmd := p.botbox(nil, args...)
		chrome := drive(t, cmd)
		chrome.do("Browser.getVersion", map[string]any{}, nil)
		if _, err := os.Lstat(filepath.Join(profile, "SingletonLock")); err != nil {
			t.Errorf("Chrome has no lock in its profile: %v", err)
		}
		cmd.Process.Kill()
		if rest, _ := io.ReadAll(chrome.answers); strings.Contains(string(rest), "result") {
			t.Errorf("after its end the browser says %q", rest)
		}
	}
}
