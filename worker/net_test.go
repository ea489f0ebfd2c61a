package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// fixture is a server of the machine that counts what it is asked.
type fixture struct {
	*httptest.Server
	hits atomic.Int64
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.hits.Add(1)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, r.Header.Get("Authorization"))
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fixture) port() string { return f.URL[strings.LastIndex(f.URL, ":")+1:] }

// The server's own port in a box reaches the internal routes, and nothing else.
func TestTheHarnessGate(t *testing.T) {
	server := newFixture(t)
	p := newPlace(t)
	out := rig.Run(t, p.botbox([]string{"OMB_PORT=" + server.port()}, "run", "--standalone", "--", "sh", "-c", `
		curl -sS -H 'Authorization: Bearer turn' "http://127.0.0.1:$1/api/internal/agents?x=1"; echo
		for path in /api/bots /api/internal /api/internal/../bots /api/internal/%2e%2e/bots //api/internal/x; do
			curl -s --path-as-is -o /dev/null -w '%{http_code}\n' "http://127.0.0.1:$1$path"
		done`, "sh", server.port()))
	want := "GET /api/internal/agents?x=1 Bearer turn\n403\n403\n403\n403\n403\n"
	if out.Stdout != want || server.hits.Load() != 1 {
		t.Errorf("%+v; the server was asked %d times", out, server.hits.Load())
	}
}

// The egress gate refuses this machine by address, in every spelling, says why
// in words, and lets through what the operator excepts by name.
func TestTheEgressGate(t *testing.T) {
	server := newFixture(t)
	p := newPlace(t)
	call := []string{"run", "--standalone", "--", "sh", "-c", `
		for host in 127.0.0.1 [::1] 169.254.169.254 10.0.0.1 [::ffff:127.0.0.1] [fd00:ec2::254] localhost; do
			curl -s -o /dev/null -w '%{http_code} ' --noproxy '' -x "$http_proxy" "http://$host:$1/"
			curl -s -o /dev/null -w '%{http_connect}\n' --noproxy '' -x "$http_proxy" "https://$host:$1/"
		done
		curl -s --noproxy '' -x "$http_proxy" "http://127.0.0.1:$1/"`, "sh", server.port()}
	out := rig.Run(t, p.botbox(nil, call...))
	if !strings.HasPrefix(out.Stdout, strings.Repeat("403 403\n", 7)) || server.hits.Load() != 0 || !strings.Contains(out.Stdout, "Why: ") {
		t.Errorf("%+v; the server was asked %d times", out, server.hits.Load())
	}
	out = rig.Run(t, p.botbox([]string{"OMB_EGRESS_EXCEPT=127.0.0.1:" + server.port()}, call...))
	if !strings.HasPrefix(out.Stdout, "200 ") || server.hits.Load() == 0 {
		t.Errorf("positive control, excepted by the operator: %+v", out)
	}
	out = rig.Run(t, p.botbox([]string{"OMB_EGRESS_EXCEPT=127.0.0.1:" + server.port()}, append([]string{"run", "--standalone", "--allow-host", "example.com"}, call[2:]...)...))
	if !strings.HasPrefix(out.Stdout, "403 403") {
		t.Errorf("not on the box's own list: %+v", out)
	}
}

// Without a network there is no gate, no proxy, and no use for a key.
func TestNoNetwork(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		out := rig.Run(t, p.botbox([]string{"ANTHROPIC_API_KEY=sk-canary"}, with(run, "--net", "none", "--json", "--", "sh", "-c",
			`env | grep -i -e proxy -e anthropic; curl -s --max-time 2 http://127.0.0.1:3128/; echo $?`)...))
		if out.Stdout != "7\n" {
			t.Errorf("%+v", out)
		}
		if !strings.Contains(out.Stderr, `"ANTHROPIC_API_KEY"`) || strings.Contains(out.Stderr, "sk-canary") {
			t.Errorf("the answer does not name the dropped key, or shows it: %s", out.Stderr)
		}
	})
}

// HOME of a Cloud home: the engines' logins are there, the data folder is not,
// and nothing is made in it.
func TestHomeServer(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		rig.Write(t, filepath.Join(p.home, ".claude/login"), "mine")
		refused := rig.Run(t, p.botbox(nil, with(run, "--home", "server", "--", "true")...))
		if refused.Code != 100 || !strings.Contains(refused.Stderr, "reason: path_refused") {
			t.Errorf("a data folder that could appear in the box later: %+v", refused)
		}
		rig.Write(t, filepath.Join(p.home, ".openmausbot/messages.db"), "canary")
		workspace := filepath.Join(p.home, ".openmausbot/workspaces/b-12")
		rig.Write(t, filepath.Join(workspace, "MEMORY.md"), "memory")
		for _, dir := range []string{".claude", ".openmausbot", ".openmausbot/workspaces", ".openmausbot/workspaces/b-12"} {
			rig.Give(t, filepath.Join(p.home, dir))
		}
		out := rig.Run(t, p.botbox(nil, with(run, "--home", "server", "--cwd", workspace, "--", "sh", "-c",
			`cat ~/.claude/login MEMORY.md; ls -A ~/.openmausbot ~/.openmausbot/workspaces; echo kept >~/.claude/refreshed; echo new >note; echo lost >~/.openmausbot/x`)...))
		if !strings.HasPrefix(out.Stdout, "minememory") || strings.Contains(out.Stdout, "messages.db") {
			t.Errorf("%+v", out)
		}
		for path, want := range map[string]bool{".claude/refreshed": true, ".openmausbot/workspaces/b-12/note": true, ".openmausbot/x": false} {
			if _, err := os.Stat(filepath.Join(p.home, path)); (err == nil) != want {
				t.Errorf("%s outside: %v, want there: %v", path, err, want)
			}
		}
	})
}

// A worker that is told to stop lets engines end, and leaves no socket.
func TestAWorkerStops(t *testing.T) {
	p := newPlace(t)
	worker := p.serve()
	cmd, out := start(t, p.botbox(nil, "run", "--", "sh", "-c", "trap 'exit 4' TERM; echo up; while :; do sleep 0.02; done"))
	line(t, out)
	second := rig.Run(t, p.botbox(nil, "serve"))
	if second.Code != 100 && second.Code != 111 {
		t.Errorf("a second worker in the same folders: %+v", second)
	}
	worker.Process.Signal(syscall.SIGTERM)
	if code := rig.Code(cmd.Wait()); code != 4 {
		t.Errorf("the engine ended with %d", code)
	}
	if code := rig.Code(worker.Wait()); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	if entries, _ := os.ReadDir(p.run); len(entries) != 0 {
		t.Errorf("left in the run folder: %v", entries)
	}
}

// A worker that is killed takes its boxes along, and the next one starts.
func TestAWorkerIsKilled(t *testing.T) {
	p := newPlace(t)
	worker := p.serve()
	m := mark(t)
	cmd, out := start(t, p.botbox(nil, "run", "--", "sh", "-c", "echo up; sleep 300; : "+m))
	line(t, out)
	rig.Eventually(t, 20*time.Second, "the worker's own self-check is done", func() bool {
		return strings.Contains(rig.Run(t, p.botbox(nil, "report", "--json")).Stdout, `"checks":"29/29"`)
	})
	worker.Process.Kill()
	worker.Wait()
	cmd.Process.Kill() // leased: the box is its asker's, not the worker's
	rig.Eventually(t, time.Second, "the box is gone", func() bool { return len(marked(t, m)) == 0 })
	os.Remove(filepath.Join(p.run, "api.sock"))
	p.serve()
	if out := rig.Run(t, p.botbox(nil, "run", "--", "echo", "ran")); out.Stdout != "ran\n" {
		t.Errorf("after the crash: %+v", out)
	}
}

// A prompt as long as Linux takes one goes through, whole.
func TestAnArgumentOfManyBytes(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		long := strings.Repeat("x", 127<<10)
		cmd := p.botbox(nil, with(run, "--", "sh", "-c", `printf '%s' "$1$2$3" | wc -c`, "sh", long, long, long)...)
		cmd.Stdin = io.NopCloser(strings.NewReader(""))
		if out := rig.Run(t, cmd); out.Stdout != fmt.Sprintln(3*len(long)) {
			t.Errorf("%.200s, %d", out.Stdout+out.Stderr, out.Code)
		}
	})
}
