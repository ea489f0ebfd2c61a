package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/box"
)

// signer is an engine that waits for its sign-in: an HTTP server that tells the
// test each request as it came, byte by byte. Its answer is the second word.
const signer = `import socket, sys
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
s.bind((sys.argv[1], 0)); s.listen(16)
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept(); head = b""
    while not head.endswith(b"\r\n\r\n"):
        more = c.recv(65536)
        if not more: break
        head += more
    print(head.hex(), flush=True)
    if sys.argv[2] == "ok": c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\nSigned in"); c.close()
    elif sys.argv[2] == "silent": keep = c
    elif sys.argv[2] == "endless":
        try:
            c.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True: c.sendall(b"x" * 65536)
        except OSError: pass
    else: c.sendall(sys.argv[2].encode().decode("unicode_escape").encode()); c.close()
`

// relayed is a box with a sign-in relay and a signer in it.
type relayed struct {
	*place
	id, port string
	cmd      *exec.Cmd
	out      *bufio.Reader
}

// leaseSpec starts a leased box from a spec whose further fields are JSON.
func (p *place) leaseSpec(fields string, argv ...string) (*exec.Cmd, *bufio.Reader) {
	p.t.Helper()
	words, _ := json.Marshal(argv)
	name := filepath.Join(p.top, "spec.json")
	rig.Write(p.t, name, `{"argv":`+string(words)+`,"cwd":"`+p.work+`",`+fields+`}`)
	return start(p.t, p.botbox(nil, "run", "--spec", name))
}

func (p *place) signIn(id, host, answer string, more ...string) *relayed {
	p.t.Helper()
	cmd, out := p.leaseSpec(`"id":"`+id+`","net":{"relay":true}`, append([]string{"python3", "-c", signer, host, answer}, more...)...)
	return &relayed{p, id, line(p.t, out), cmd, out}
}

// got gives the next request that the signer had.
func (r *relayed) got() string {
	r.t.Helper()
	var head []byte
	if _, err := fmt.Sscanf(line(r.t, r.out), "%x", &head); err != nil {
		r.t.Fatal(err)
	}
	return string(head)
}

func (r *relayed) deliver(body string) (int, string) {
	r.t.Helper()
	return r.api("POST", "/v1/boxes/"+r.id+"/relay", body)
}

func pasted(url string) string {
	b, _ := json.Marshal(map[string]string{"url": url})
	return string(b)
}

// A redirect that was pasted elsewhere arrives as it is, and the engine's answer
// comes back; the log has no code in it.
func TestTheSigninRelay(t *testing.T) {
	p := newPlace(t)
	worker := p.serve()
	const target = "/cb?state=s%2Fx&code=4/canary-0Af&next=http://a@b/;%2e%2e/"
	for i, c := range []struct{ listens, url string }{
		{"127.0.0.1", "http://127.0.0.1:PORT" + target}, {"127.0.0.1", "http://localhost:PORT" + target}, {"0.0.0.0", "http://127.0.0.1:PORT" + target},
		{"::1", "http://localhost:PORT" + target}, {"::1", "http://[::1]:PORT" + target},
	} {
		r := p.signIn(fmt.Sprint("box_", i), c.listens, "ok")
		url := strings.Replace(c.url, "PORT", r.port, 1)
		status, answer := r.deliver(pasted(url))
		if want := `{"status":200,"headers":{"content-type":"text/html"},"body":"Signed in","truncated":false}` + "\n"; status != 200 || answer != want {
			t.Errorf("%s: %d %s", url, status, answer)
			continue
		}
		host := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), target)
		if head := r.got(); !strings.HasPrefix(head, "GET "+target+" HTTP/1.1\r\nHost: "+host+"\r\n") {
			t.Errorf("%s arrives as %q", url, head)
		}
		status, answer = r.deliver(`{"port":` + r.port + `,"request":{"method":"GET","target":"/again"}}`)
		if head := r.got(); status != 200 || !strings.HasPrefix(head, "GET /again HTTP/1.1\r\nHost: localhost:"+r.port+"\r\n") {
			t.Errorf("by its parts: %d %s, %q", status, answer, head)
		}
		r.cmd.Process.Kill()
		r.cmd.Wait()
	}
	worker.Process.Signal(unix.SIGTERM)
	worker.Wait()
	log := worker.Stdout.(*bytes.Buffer).String()
	if n := strings.Count(log, "the redirect of a sign-in was sent into a box"); n != 10 || !strings.Contains(log, "result=delivered status=200") || strings.Contains(log, "canary") {
		t.Errorf("%d lines in the log:\n%s", n, log)
	}
}

// The socket that was donated serves for ever, and nothing of it adds up.
func TestTheRelayAgainAndAgain(t *testing.T) {
	p := newPlace(t)
	worker := p.settled()
	r := p.signIn("box_again", "127.0.0.1", "ok")
	r.deliver(pasted("http://127.0.0.1:" + r.port + "/0"))
	r.got()
	files := p.footprint(worker).files
	for i := 1; i <= 50; i++ {
		target := fmt.Sprintf("/%d", i)
		if status, answer := r.deliver(pasted("http://localhost:" + r.port + target)); status != 200 {
			t.Fatalf("%s: %d %s", target, status, answer)
		}
		if head := r.got(); !strings.HasPrefix(head, "GET "+target+" ") {
			t.Fatalf("%s: %q", target, head)
		}
		if status, _ := r.deliver(pasted("http://localhost:1/")); status != 400 {
			t.Errorf("a wrong one in between: %d", status)
		}
		if status, answer := r.deliver(pasted("http://localhost:1999/")); status != 409 {
			t.Errorf("nobody there: %d %s", status, answer)
		}
	}
	rig.Eventually(t, 2*time.Second, "no file more is open", func() bool { return p.footprint(worker).files <= files })
}

// Nobody but the caller chooses, and only what is a redirect to the box.
func TestWhatTheRelayRefuses(t *testing.T) {
	p := newPlace(t)
	p.serve()
	r := p.signIn("box_with", "127.0.0.1", "ok")
	_, out := p.leaseSpec(`"id":"box_without"`, "sh", "-c", "echo up; exec sleep 300")
	line(t, out)
	at := func(text string) string { return pasted(strings.ReplaceAll(text, "PORT", r.port)) }
	for _, c := range []struct {
		id, body string
		status   int
		code     string
	}{
		{"box_gone", at("http://127.0.0.1:PORT/"), 404, "no-such-box"},
		{"box_without", at("http://127.0.0.1:PORT/"), 409, "no_relay"},
		{"box_with", at("http://127.0.0.1:1999/"), 409, "relay_not_ready"},
		{"box_with", at("http://[::1]:PORT/"), 409, "relay_not_ready"},
		{"box_with", at("http://127.0.0.1:3128/"), 400, "bad_redirect"}, {"box_with", at("http://127.0.0.1:18080/"), 400, "bad_redirect"},
		{"box_with", at("http://127.0.0.1:8799/"), 400, "bad_redirect"}, {"box_with", at("http://localhost:1080/"), 400, "bad_redirect"},
		{"box_with", at("http://127.0.0.1:80/"), 400, "bad_redirect"}, {"box_with", at("http://127.0.0.1:65536/"), 400, "bad_redirect"},
		{"box_with", at("https://127.0.0.1:PORT/"), 400, "bad_redirect"}, {"box_with", at("http://127.0.0.2:PORT/"), 400, "bad_redirect"},
		{"box_with", at("http://169.254.169.254:PORT/"), 400, "bad_redirect"}, {"box_with", at("http://u@127.0.0.1:PORT/"), 400, "bad_redirect"},
		{"box_with", at("http://127.0.0.1:PORT@evil:PORT/"), 400, "bad_redirect"}, {"box_with", at("http://127.0.0.1:PORT/ x"), 400, "bad_redirect"},
		{"box_with", at("http://127.0.0.1:PORT/\r\nX: y"), 400, "bad_redirect"}, {"box_with", at("http://127.0.0.1:PORT/" + strings.Repeat("a", 8<<10)), 400, "bad_redirect"},
		{"box_with", `{"port":` + r.port + `,"request":{"method":"POST","target":"/"}}`, 400, "bad_redirect"},
		{"box_with", `{"port":` + r.port + `,"request":{"method":"GET","target":"http://evil/"}}`, 400, "bad_redirect"},
		{"box_with", `{"port":"` + r.port + `","request":{"method":"GET","target":"/"}}`, 400, "bad_redirect"},
		{"box_with", `{"port":-1,"request":{"method":"GET","target":"/"}}`, 400, "bad_redirect"},
		{"box_with", `{"port":3128,"request":{"method":"GET","target":"/"}}`, 400, "bad_redirect"},
		{"box_with", `{"port":` + r.port + `}`, 400, "bad_redirect"}, {"box_with", `{"request":{"method":"GET","target":"/"}}`, 400, "bad_redirect"},
		{"box_with", `{"url":"http://127.0.0.1:` + r.port + `/","port":` + r.port + `}`, 400, "bad_redirect"},
		{"box_with", `{"url":"http://127.0.0.1:` + r.port + `/","host":"evil"}`, 400, "bad_redirect"},
		{"box_with", `{}`, 400, "bad_redirect"}, {"box_with", ``, 400, "bad_redirect"}, {"box_with", `[]`, 400, "bad_redirect"}, {"box_with", `null`, 400, "bad_redirect"},
		{"box_with", `{"url":"` + strings.Repeat("x", 1<<20) + `"}`, 400, "bad_redirect"},
	} {
		status, answer := p.api("POST", "/v1/boxes/"+c.id+"/relay", c.body)
		var fault struct{ Code, Message, Hint string }
		json.Unmarshal([]byte(answer), &fault)
		if status != c.status || fault.Code != c.code || fault.Message == "" || fault.Hint == "" {
			t.Errorf("%s %.80s: %d %.200s, want %d %s", c.id, c.body, status, answer, c.status, c.code)
		}
	}
	if status, answer := r.deliver(at("http://127.0.0.1:PORT/control")); status != 200 { // positive control
		t.Errorf("%d %s", status, answer)
	}
	if head := r.got(); !strings.HasPrefix(head, "GET /control ") {
		t.Errorf("before the control the engine got %q", head)
	}
	p.work = p.top // the refusals of a spec
	for _, fields := range []string{`"kind":"browser","net":{"relay":true}`, `"kind":"browser","net":{"mode":"shared","relay":true}`, `"net":{"mode":"shared","relay":true}`} {
		cmd := p.botbox(nil, "run", "--spec", "-")
		cmd.Stdin = strings.NewReader(`{"argv":["true"],` + fields + `}`)
		if out := rig.Run(t, cmd); out.Code != 100 || !strings.Contains(out.Stderr, "reason: bad_spec") {
			t.Errorf("%s: %+v", fields, out)
		}
	}
	if out := p.turn(`"net":{"relay":true}`, "true"); out.Code != 100 || !strings.Contains(out.Stderr, "reason: no-worker") {
		t.Errorf("without a worker: %+v", out)
	}
}

// A box cannot tell from anything but its kernel's number of sockets that there
// is a way in, and no process in it holds one.
func TestTheRelayIsNotSeenInTheBox(t *testing.T) {
	const look = `ls -l /proc/self/fd | awk '{print $9}'; ls -A /run /run/*; env | sort
		for f in tcp tcp6 udp udp6 raw raw6; do echo $f; awk '{print $2, $3, $4, $8}' /proc/net/$f | sort; done
		awk '{print $2, $3}' /proc/net/netlink; wc -l </proc/net/packet; wc -l </proc/net/unix; awk '{$1 = $2 = $3 = ""; print}' /proc/self/mountinfo; ls /proc | grep -c '^[0-9]'
		cat /proc/1/cmdline /proc/1/environ | tr '\0' ' '; ls /proc/1/fd | wc -l
		echo "used $(awk '/^sockets/ {print $3}' /proc/net/sockstat)"`
	p := newPlace(t)
	p.serve()
	see := func(relay bool) (rest, used string) {
		cmd := p.botbox(nil, "run", "--spec", "-")
		cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"argv":["sh","-c",%q],"net":{"relay":%v}}`, look, relay))
		out := rig.Run(t, cmd)
		if out.Code != 0 {
			t.Fatalf("%+v", out)
		}
		i := strings.LastIndex(out.Stdout, "used ") // the script itself stands in /proc/1/cmdline
		return out.Stdout[:i], strings.TrimSpace(out.Stdout[i+len("used "):])
	}
	without, used := see(false)
	with, usedWith := see(true)
	// What bubblewrap was told stands in no place that a box can read.
	if without != with || !strings.Contains(without, "0100007F:0C38") {
		t.Errorf("with a relay:\n%s\nwithout:\n%s", with, without)
	}
	if used != "3" || usedWith != "5" {
		t.Errorf("the kernel counts %s and %s sockets; the package comment says two more", used, usedWith)
	}
}

// Whoever listens in the box may do what it likes: the worker is held up for a
// bounded time by one box, dials nothing else, and keeps nothing.
func TestAHostileSigner(t *testing.T) {
	elsewhere := newFixture(t)
	p := newPlace(t)
	worker := p.settled()
	before := p.footprint(worker)
	for _, c := range []struct {
		answer string
		status int
		says   string
	}{
		{"endless", 200, `"truncated":true`},
		{`hello\r\n\r\n`, 502, "relay_failed"},
		{`HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx`, 502, "relay_failed"},
		{`HTTP/1.1 307 x\r\nLocation: ` + elsewhere.URL + `/\r\nContent-Length: 0\r\n\r\n`, 200, elsewhere.URL},
	} {
		r := p.signIn("box_hostile", "127.0.0.1", c.answer)
		status, answer := r.deliver(pasted("http://127.0.0.1:" + r.port + "/"))
		if status != c.status || !strings.Contains(answer, c.says) || len(answer) > 100<<10 {
			t.Errorf("%.40q: %d %.200s", c.answer, status, answer)
		}
		r.cmd.Process.Kill()
		r.cmd.Wait()
		rig.Eventually(t, 5*time.Second, "the box has ended", func() bool { return len(p.listed()) == 0 })
	}
	if n := elsewhere.hits.Load(); n != 0 {
		t.Errorf("the worker followed a redirect %d times", n)
	}
	r := p.signIn("box_silent", "127.0.0.1", "silent")
	first := make(chan int, 1)
	go func() { status, _ := r.deliver(pasted("http://127.0.0.1:" + r.port + "/")); first <- status }()
	r.got()
	if status, answer := r.deliver(pasted("http://127.0.0.1:" + r.port + "/")); status != 429 || !strings.Contains(answer, "relay_busy") {
		t.Errorf("a second one: %d %s", status, answer)
	}
	other := p.signIn("box_other", "127.0.0.1", "ok")
	if status, answer := other.deliver(pasted("http://127.0.0.1:" + other.port + "/")); status != 200 {
		t.Errorf("another box: %d %s", status, answer)
	}
	// Killed while its answer is awaited, it leaves nothing: no file, and so
	// no network namespace.
	other.cmd.Process.Kill()
	r.cmd.Process.Kill()
	killed := time.Now()
	if status := <-first; status != 502 && status != 404 {
		t.Errorf("the caller of a box that was killed: %d", status)
	}
	if took := time.Since(killed); took > 5*time.Second {
		t.Errorf("it waited %v", took)
	}
	r.cmd.Wait()
	other.cmd.Wait()
	os.Remove(filepath.Join(p.top, "spec.json"))
	rig.Eventually(t, time.Second, "the worker has let go", func() bool { return p.footprint(worker).files <= before.files })
	p.shrinksTo(worker, before)
}

// A lease holder that donates sockets of the machine's own network would make
// the worker connect there. Its box is refused.
func TestADonatedSpareMustBeOfAnotherNetwork(t *testing.T) {
	p := newPlace(t)
	p.serve()
	socket := func(family, kind int) int {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	v4, v6, udp := socket(unix.AF_INET, unix.SOCK_STREAM), socket(unix.AF_INET6, unix.SOCK_STREAM), socket(unix.AF_INET, unix.SOCK_DGRAM)
	local := socket(unix.AF_UNIX, unix.SOCK_STREAM)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	file, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows := [][]int{{v4, v6}, {v4}, {v6}, {v4, v4}, {v4, v6, v6}, {udp, v6}, {local, v6}, {int(file.Fd()), v6}, {0, v6}, {}}
	for _, files := range rows {
		m := p.lease([]byte(`{"argv":["true"],"cwd":"` + p.work + `","net":{"mode":"none","relay":true}}`))
		argv := fmt.Sprint(m["argv"])
		entry := -1
		for word := range strings.FieldsSeq(argv) {
			fmt.Sscanf(word, "socket=%d", &entry)
		}
		packet := wire.Donation{Build: rig.Build, Spares: len(files), Landlock: box.Landlock()}.String()
		if err := unix.Sendmsg(p.leased[entry-16], []byte(packet), rightsOf(files), nil, 0); err != nil {
			t.Fatal(err)
		}
		for _, fd := range slices.Concat(p.leased) {
			unix.Close(fd)
		}
		p.leased = nil
	}
	rig.Eventually(t, 5*time.Second, "none of them was let go", func() bool {
		return strings.Contains(rig.Run(t, p.botbox(nil, "report", "--json")).Stdout, fmt.Sprintf(`"boxed":0,"refused":%d`, len(rows)))
	})
	// Positive control: the same box, built by boxentry.
	cmd, out := p.leaseSpec(`"id":"box_none","net":{"mode":"none","relay":true}`, "python3", "-c", signer, "127.0.0.1", "ok")
	r := &relayed{p, "box_none", line(t, out), cmd, out}
	if status, answer := r.deliver(pasted("http://127.0.0.1:" + r.port + "/")); status != 200 {
		t.Errorf("%d %s", status, answer)
	}
}
