package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// vendor is a provider that tells which keys it saw.
type vendor struct {
	*httptest.Server
	mu   sync.Mutex
	keys []string
	echo bool
}

func newVendor(t *testing.T) *vendor {
	v := &vendor{}
	v.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.keys = append(v.keys, r.Header.Get("X-Api-Key"))
		if v.echo {
			fmt.Fprintln(w, "your key is", r.Header.Get("X-Api-Key"))
		}
		io.WriteString(w, `{"usage":{"input_tokens":60,"output_tokens":40}}`)
	}))
	t.Cleanup(v.Close)
	return v
}

func (v *vendor) seen() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strings.Join(v.keys, " ")
}

// caller is a box that asks its provider once for each line that it gets.
const caller = `echo $ANTHROPIC_BASE_URL; while read n; do curl -s -w '%{http_code}\n' -d '{}' "$ANTHROPIC_BASE_URL/v1/messages" | tail -c 4; done`

// turnFile writes a spec whose key is a named secret.
func (p *place) turnFile(upstream, broker string, argv ...string) string {
	p.t.Helper()
	words, _ := json.Marshal(argv)
	path := fmt.Sprintf("%s/spec%d.json", p.top, time.Now().UnixNano())
	rig.Write(p.t, path, fmt.Sprintf(`{"argv":%s,"cwd":%q,"env":{"ANTHROPIC_API_KEY":{"secret":"ref:claude"},"ANTHROPIC_BASE_URL":%q}%s}`,
		words, p.work, upstream, broker))
	return path
}

// startCaller starts the box and gives its base URL, and a way to let it ask.
func (p *place) startCaller(spec string) (url string, ask func() string) {
	p.t.Helper()
	cmd := p.botbox(nil, "run", "--spec", spec)
	in, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	_, out := start(p.t, cmd)
	url = line(p.t, out)
	return url, func() string {
		p.t.Helper()
		io.WriteString(in, "go\n")
		return line(p.t, out)
	}
}

// A key that is exchanged in its file is the one that a running box's next
// request carries, within a second and without another box.
func TestARotatedKeyReachesARunningBox(t *testing.T) {
	p, v := newPlace(t), newVendor(t)
	secrets := p.folder(filepath.Join(p.top, "secrets"))
	os.Chmod(secrets, 0o700)
	rig.Write(t, filepath.Join(secrets, "claude"), "sk-first\n")
	p.env = append(p.env, "OMB_SECRETS_DIR="+secrets)
	p.serve()
	_, ask := p.startCaller(p.turnFile(v.URL, `,"broker":{"limits":{"tokens":300}}`, "sh", "-c", caller))
	if got := ask(); got != "200" {
		t.Fatalf("control: %s", got)
	}
	rig.Write(t, filepath.Join(secrets, "claude"), "sk-second\n")
	if got := ask(); got != "200" || v.seen() != "sk-first sk-first" {
		t.Fatalf("before the rotation: %s, the provider saw %s", got, v.seen())
	}
	begin := time.Now()
	status, answer := p.api("POST", "/v1/keys/rotate", "")
	took := time.Since(begin)
	if status != 200 || !strings.Contains(answer, `{"refs":["claude"],"grants":1,"boxes":1}`) || took > time.Second {
		t.Errorf("rotate: %d %s after %v", status, answer, took)
	}
	if got := ask(); got != "200" || v.seen() != "sk-first sk-first sk-second" {
		t.Errorf("after it: %s, the provider saw %s", got, v.seen())
	}
	if got := ask(); got != "429" { // 300 tokens are spent
		t.Errorf("over the limit of tokens: %s", got)
	}
	for body, want := range map[string]int{
		`{"ref":"claude"}`: 200, `{"ref":"other"}`: 400, `{"ref":""}`: 400, `{"x":1}`: 400, `[]`: 400, `{"ref":"claude"} x`: 400, `null`: 200,
	} {
		if status, answer := p.api("POST", "/v1/keys/rotate", body); status != want {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	os.Remove(filepath.Join(secrets, "claude"))
	if status, answer := p.api("POST", "/v1/keys/rotate", ""); status != 400 || !strings.Contains(answer, "claude") {
		t.Errorf("without the file: %d %s", status, answer)
	}
}

// A WebSocket from a box: both ways, with the key put in, and cut on the
// provider's side when the box is killed.
func TestAWebSocketOfABoxEndsWithIt(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		heard, gone := make(chan string, 1), make(chan time.Time, 1)
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer sk-canary" || strings.Contains(fmt.Sprint(r.Header, r.URL), "omb_") {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
			fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n\x81\x06hello\n",
				base64.StdEncoding.EncodeToString(sum[:]))
			first := make([]byte, 5)
			io.ReadFull(rw, first)
			heard <- string(first)
			io.Copy(io.Discard, rw)
			gone <- time.Now()
		}))
		defer upstream.Close()
		m := mark(t)
		cmd, out := start(t, p.botbox([]string{"OPENAI_API_KEY=sk-canary", "OPENAI_BASE_URL=" + upstream.URL + "/v1"}, with(run, "--", "bash", "-c", `
			exec 3<>/dev/tcp/127.0.0.1/18080
			printf 'GET %s/responses HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n' "${OPENAI_BASE_URL#http://127.0.0.1:18080}" >&3
			read -r status <&3; echo "$status"; printf 'reply' >&3
			while read -r line <&3; do case $line in *hello) echo hello; break;; esac; done; sleep 300; : `+m)...))
		if got := strings.TrimSpace(line(t, out)); got != "HTTP/1.1 101 Switching Protocols" {
			t.Fatalf("the handshake: %q", got)
		}
		if got := line(t, out); got != "hello" {
			t.Errorf("the provider's frame: %q", got)
		}
		if got := <-heard; got != "reply" {
			t.Errorf("the provider heard %q", got)
		}
		kill(t, cmd, m, "engine")
		killed := time.Now()
		select {
		case at := <-gone:
			t.Logf("cut after %v", at.Sub(killed))
		case <-time.After(10 * time.Second):
			t.Error("the provider's side still stands")
		}
		cmd.Wait()
	})
}

// After all that can happen to a key and a token, neither is anywhere but in
// the worker's memory, which no other process of its user can read.
func TestNoKeyAndNoTokenIsLeftBehind(t *testing.T) {
	p, v := newPlace(t), newVendor(t)
	v.echo = true
	secrets := p.folder(filepath.Join(p.top, "secrets"))
	os.Chmod(secrets, 0o700)
	const key, second = "sk-canary-4f1d9b7a", "sk-canary-77c0e2aa"
	rig.Write(t, filepath.Join(secrets, "claude"), key+"\n")
	p.env = append(p.env, "OMB_SECRETS_DIR="+secrets, "OMB_LOG=text")
	logged := filepath.Join(p.top, "log")
	worker := p.logged(logged)

	spec := p.turnFile(v.URL, "", "sh", "-c", caller)
	url, ask := p.startCaller(spec)
	token := strings.Split(url, "/")[4]
	if got := ask(); got != "200" || !strings.HasPrefix(token, "omb_t0_") {
		t.Fatalf("control: %s, token %s", got, token)
	}
	refused := rig.Run(t, p.botbox(nil, "run", "--spec", p.turnFile(v.URL, "", "sh", "-c", fmt.Sprintf(`
		own=$(echo $ANTHROPIC_BASE_URL | cut -d/ -f5); printf '%%s ' $own
		for url in %[1]s/v1/messages $ANTHROPIC_BASE_URL/v1/organizations "$ANTHROPIC_BASE_URL/v1/messages?key=$own" http://127.0.0.1:18080/b/omb_t0_x/openai/responses; do
			curl -s -o /dev/null -w '%%{http_code} ' -H "X-Api-Key: $own" -d '{}' "$url"
		done
		curl -s -o /dev/null -w '%%{http_code}' -m 5 -H 'Upgrade: websocket' -H 'Connection: Upgrade' "$ANTHROPIC_BASE_URL/v1/messages"`, url))))
	words := strings.Fields(refused.Stdout)
	if len(words) != 6 || strings.Join(words[1:], " ") != "403 403 200 401 426" {
		t.Fatalf("the other box: %+v", refused)
	}
	rig.Write(t, filepath.Join(secrets, "claude"), second+"\n")
	_, ask = p.startCaller(spec)
	p.api("POST", "/v1/keys/rotate", "")
	if got := ask(); got != "200" || !strings.HasSuffix(v.seen(), second) {
		t.Fatalf("after the rotation: %s, the provider saw %s", got, v.seen())
	}

	// The audit log is written behind the requests.
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if b, _ := os.ReadFile(filepath.Join(p.state, "audit.log")); strings.Contains(string(b), `"kind":"stolen"`) && strings.Contains(string(b), `"redacted":1`) {
			break
		}
	}
	places := map[string]string{}
	for _, args := range [][]string{{"audit", "--json"}, {"audit"}, {"report", "--json"}, {"ps", "--json"}} {
		out := rig.Run(t, p.botbox(nil, args...))
		if out.Code != 0 {
			t.Errorf("%v: %+v", args, out)
		}
		places["botbox "+strings.Join(args, " ")] = out.Stdout + out.Stderr
	}
	files := []string{logged}
	for _, name := range []string{"cmdline", "environ", "comm", "status", "maps"} {
		files = append(files, fmt.Sprintf("/proc/%d/%s", worker.Process.Pid, name))
	}
	state, err := filepath.Glob(filepath.Join(p.state, "*"))
	if err != nil || len(state) < 2 {
		t.Fatalf("the state folder holds %v", state)
	}
	for _, name := range append(files, state...) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		places[name] = string(b)
	}
	for name, text := range places {
		for _, needle := range []string{key, second, token, words[0], token[7:], "/v1/organizations"} {
			if strings.Contains(text, needle) {
				t.Errorf("%s holds %s", name, needle)
			}
		}
	}
	// Controls: the same search finds what must be there.
	for name, needle := range map[string]string{
		"botbox audit --json": `"kind":"stolen"`, "botbox report --json": `"stolen":1`, logged: "a token came from a box", filepath.Join(p.state, "audit.log"): `"redacted":1`,
		fmt.Sprintf("/proc/%d/environ", worker.Process.Pid): "OMB_SECRETS_DIR",
	} {
		if !strings.Contains(places[name], needle) {
			t.Errorf("control: %s does not hold %s:\n%s", name, needle, places[name])
		}
	}
	// The worker's memory is for nobody: it is not dumpable, so the kernel
	// gives its files in /proc to root and writes no core.
	reads := func(pid int) rig.Output {
		return rig.Run(t, rig.Command(t, "/", p.env, "head", "-c1", fmt.Sprintf("/proc/%d/environ", pid)))
	}
	if out := reads(worker.Process.Pid); out.Code == 0 {
		t.Error("another process of the worker's user can read it")
	}
	sleep := rig.Command(t, "/", p.env, "sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { sleep.Process.Kill(); sleep.Wait() }()
	if out := reads(sleep.Process.Pid); out.Code != 0 {
		t.Errorf("control: an ordinary process cannot be read either: %+v", out)
	}
	p.noCore(worker)
	if dump, err := os.ReadFile(logged); err != nil || !strings.Contains(string(dump), "goroutine ") {
		t.Errorf("control: the crash left no trace: %v", err)
	} else if holds := strings.Contains(string(dump), "canary") || strings.Contains(string(dump), token); holds {
		t.Error("the trace of the crash holds a key or a token")
	}
}

// coreOn lets a program leave as much of a core as this machine lets it.
const coreOn = "ulimit -c $(ulimit -H -c); "

// logged is serve with its words in a file, and no limit on core dumps.
func (p *place) logged(path string) *exec.Cmd {
	p.t.Helper()
	f, err := os.Create(path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	cmd := rig.Command(p.t, p.top, append(append([]string{}, p.env...), "GOTRACEBACK=crash"),
		"sh", "-c", coreOn+"exec "+filepath.Join(p.bin, "botbox")+" serve")
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	rig.Eventually(p.t, 10*time.Second, "the worker listens", func() bool {
		_, err := os.Stat(filepath.Join(p.run, "api.sock"))
		return err == nil
	})
	return cmd
}

// noCore ends the worker in the way in which programs leave a core.
func (p *place) noCore(worker *exec.Cmd) {
	p.t.Helper()
	worker.Process.Signal(syscall.SIGABRT)
	err := worker.Wait()
	status, ok := worker.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.CoreDump() {
		p.t.Errorf("the worker ended with %v, core dumped %v", err, status.CoreDump())
	}
	// The same signal, sent to a program that may be dumped.
	control := exec.Command("sh", "-c", coreOn+"kill -ABRT $$")
	control.Dir = p.t.TempDir()
	control.Run()
	if status := control.ProcessState.Sys().(syscall.WaitStatus); !status.CoreDump() {
		p.t.Logf("this machine writes no cores at all, so this part has no control: core_pattern decides")
	}
}

// The audit log holds, as long as nobody changes it.
func TestTheAuditLogShowsAChange(t *testing.T) {
	p, v := newPlace(t), newVendor(t)
	if out := rig.Run(t, p.botbox(nil, "audit")); out.Code != 100 || !strings.Contains(out.Stderr, "reason: no-audit") {
		t.Errorf("without one: %+v", out)
	}
	worker := p.serve("ANTHROPIC_API_KEY=unused")
	box := []string{"ANTHROPIC_API_KEY=sk-canary", "ANTHROPIC_BASE_URL=" + v.URL}
	for range 3 {
		if out := rig.Run(t, p.botbox(box, "run", "--", "sh", "-c", `curl -s -d '{}' "$ANTHROPIC_BASE_URL/v1/messages"`)); !strings.Contains(out.Stdout, "usage") {
			t.Fatalf("%+v", out)
		}
	}
	verify := func() rig.Output { return rig.Run(t, p.botbox(nil, "audit", "--verify")) }
	if out := verify(); out.Code != 0 || !strings.Contains(out.Stdout, "the chain holds") || !strings.Contains(out.Stdout, "that the worker names") {
		t.Errorf("%+v", out)
	}
	out := rig.Run(t, p.botbox(nil, "audit", "--json"))
	if same := rig.Run(t, p.botbox(nil, "logs", "--broker", "--json")); same.Code != 0 || !strings.HasPrefix(same.Stdout, out.Stdout) {
		t.Errorf("logs --broker is not what audit prints: %+v", same)
	}
	requests := 0
	for lines := bufio.NewScanner(strings.NewReader(out.Stdout)); lines.Scan(); {
		var l map[string]any
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Errorf("%q: %v", lines.Text(), err)
		}
		if l["kind"] == "request" && l["route"] == "/v1/messages/**" && l["status"] == 200.0 && l["grant"] == "anthropic" {
			requests++
		}
	}
	if requests < 3 { // the self-check at boot makes requests of its own
		t.Errorf("%d requests in\n%s", requests, out.Stdout)
	}
	path := filepath.Join(p.state, "audit.log")
	// While the worker runs, also the end is told.
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	short := whole[:strings.LastIndex(strings.TrimSuffix(string(whole), "\n"), "\n")+1]
	if err := os.Truncate(path, int64(len(short))); err != nil {
		t.Fatal(err)
	}
	if out := verify(); out.Code != 111 || !strings.Contains(out.Stderr, "reason: audit-broken") {
		t.Errorf("the end is gone: %+v", out)
	}
	worker.Process.Signal(syscall.SIGTERM)
	worker.Wait()
	rig.Write(t, path, string(whole))
	if out := verify(); out.Code != 0 || !strings.Contains(out.Stdout, "no worker answers") {
		t.Errorf("without a worker: %+v", out)
	}
	rig.Write(t, path, strings.Replace(string(whole), `"status":200`, `"status":201`, 1))
	if out := verify(); out.Code != 111 || !strings.Contains(out.Stderr, "audit.log, line ") {
		t.Errorf("a status was changed: %+v", out)
	}
}
