package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// modelServer is a server of this machine that a spec declares.
type modelServer struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

func newModelServer(t *testing.T) *modelServer {
	t.Helper()
	m := &modelServer{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.seen = append(m.seen, r.Method+" "+r.RequestURI+" "+r.Header.Get("Authorization"))
		fmt.Fprint(w, "a model")
	}))
	t.Cleanup(m.Close)
	return m
}

// upstreamSpec is the field of a spec that declares one server as ollama.
func upstreamSpec(url string) string {
	return `"net":{"loopback_upstreams":[{"name":"ollama","url":"` + url + `"}]}`
}

// escapes are ways out of the declared server and of its base path. TOKEN is
// the box's own token, OTHER the port of another server.
var escapes = []string{
	"/b/TOKEN/ollama/../x", "/b/TOKEN/ollama/../../x", "/b/TOKEN/ollama/models/../../api/pull", "/b/TOKEN/ollama/%2e%2e/api/pull", "/b/TOKEN/ollama/%2E%2E%2Fapi/pull",
	"/b/TOKEN/ollama/.%2e/api/pull", "/b/TOKEN/ollama/..%2fapi/pull", "/b/TOKEN/ollama/%252e%252e/api/pull", "/b/TOKEN/ollama/..;/api/pull", "/b/TOKEN/ollama/\\..\\api/pull",
	"/b/TOKEN/ollama/%5c..%5capi", "/b/TOKEN/ollama/..", "/b/TOKEN/ollama/.", "/b/TOKEN/ollama/%00", "/b/TOKEN/ollama/x%0d%0aHost:x", "/b/TOKEN/ollama@127.0.0.1:OTHER/x",
	"/b/TOKEN/@127.0.0.1:OTHER/x", "/b/TOKEN/127.0.0.1:OTHER/x", "/b/TOKEN/ollama:OTHER/x", "/b/TOKEN//127.0.0.1:OTHER/x", "//127.0.0.1:OTHER/x", "//127.0.0.1:OTHER/b/TOKEN/ollama/x",
	"http://127.0.0.1:OTHER/x", "http://127.0.0.1:OTHER/b/TOKEN/ollama/x", "http://127.0.0.1:OTHER@127.0.0.1:18080/b/TOKEN/ollama/x", "127.0.0.1:OTHER", "*",
	"/b/TOKEN/http://127.0.0.1:OTHER/x", "/b/TOKEN/ollama%2f..%2fother/x", "/b/TOKEN/other/x", "/b/TOKEN/openai/v1/models", "/b/TOKEN/../TOKEN/other/x", "/b/ollama/x", "/ollama/x", "/v1/models", "/",
	"/b/TOKEN/ollama/#@127.0.0.1:OTHER/", "/b/TOKEN/ollama/x y",
}

// rawTargets sends each line of its input as a request target and prints the status.
const rawTargets = `import socket, sys
for target in sys.stdin.read().splitlines():
    s = socket.create_connection(("127.0.0.1", 18080), 10)
    s.sendall(b"GET " + target.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1:" + sys.argv[1].encode() + b"\r\nX-Forwarded-Host: 127.0.0.1:" + sys.argv[1].encode() + b"\r\nConnection: close\r\n\r\n")
    answer = b""
    while True:
        more = s.recv(65536)
        if not more: break
        answer += more
    print(answer.split(b" ")[1].decode() if answer else "closed")
`

// A model server that the spec declares is reached by name, without any
// credential, and nothing else of this machine's loopback is.
func TestALoopbackUpstream(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		model, other := newModelServer(t), newModelServer(t)
		spec := func(script string, more ...string) rig.Output {
			words, _ := json.Marshal(append([]string{"sh", "-c", script, "sh"}, more...))
			cmd := p.botbox(nil, with(run, "--json", "--spec", "-")...)
			cmd.Stdin = strings.NewReader(`{"argv":` + string(words) + `,` + upstreamSpec(model.URL+"/v1") + `}`)
			return rig.Run(t, cmd)
		}
		port := other.URL[strings.LastIndex(other.URL, ":")+1:]
		out := spec(`echo "$BOTBOX_UPSTREAM_OLLAMA"
			curl -sS -H 'Authorization: Bearer mine' "$BOTBOX_UPSTREAM_OLLAMA/models?x=1"; echo
			curl -s -o /dev/null -w '%{http_code}\n' -X DELETE "$BOTBOX_UPSTREAM_OLLAMA/models"
			for port in "$1" "$2"; do
				curl -s -o /dev/null -w '%{http_code} ' "http://127.0.0.1:$port/"
				curl -s -o /dev/null -w '%{http_code}\n' --noproxy '' -x "$http_proxy" "http://127.0.0.1:$port/"
			done
			env | grep -c omb_t0_`, model.URL[strings.LastIndex(model.URL, ":")+1:], port)
		address, rest, _ := strings.Cut(out.Stdout, "\n")
		if rest != "a model\n405\n000 403\n000 403\n1\n" || !strings.HasPrefix(address, "http://127.0.0.1:18080/b/omb_t0_") || !strings.HasSuffix(address, "/ollama") {
			t.Fatalf("%+v", out)
		}
		if !strings.Contains(out.Stderr, `"loopback_addresses":{"ollama":"`+address+`"}`) || !strings.Contains(out.Stderr, `"grants":["ollama"]`) {
			t.Errorf("the answer: %s", out.Stderr)
		}
		if len(model.seen) != 1 || model.seen[0] != "GET /v1/models?x=1 " {
			t.Errorf("the server saw %q", model.seen)
		}
		targets := strings.ReplaceAll(strings.Join(append(escapes, "/b/TOKEN/ollama/control"), "\n"), "OTHER", port)
		out = spec(`token=${BOTBOX_UPSTREAM_OLLAMA#*/b/}; printf '%s' "$3" | sed "s|TOKEN|${token%/*}|g" | python3 -c "$1" "$2"`, rawTargets, port, targets)
		statuses := strings.Fields(out.Stdout)
		if out.Code != 0 || len(statuses) != len(escapes)+1 || statuses[len(escapes)] != "200" { // the positive control
			t.Fatalf("%d of %d: %+v", len(statuses), len(escapes)+1, out)
		}
		for i, target := range escapes {
			if statuses[i] == "200" {
				t.Errorf("%s: %s", target, statuses[i])
			}
		}
		if len(other.seen) != 0 || len(model.seen) != 2 || model.seen[1] != "GET /v1/control " {
			t.Errorf("the server saw %q, the other %q", model.seen[1:], other.seen)
		}
	})
}

// What a spec may not declare.
func TestLoopbackUpstreamsThatAreRefused(t *testing.T) {
	p := newPlace(t)
	for _, fields := range []string{
		upstreamSpec("http://10.0.0.1:80"), upstreamSpec("http://127.0.0.1"), upstreamSpec("https://127.0.0.1:1"), upstreamSpec("http://127.0.0.1:8799/api"), upstreamSpec("http://localhost:8799"),
		strings.Replace(upstreamSpec("http://127.0.0.1:1"), `"ollama"`, `"openai"`, 1), strings.Replace(upstreamSpec("http://127.0.0.1:1"), `"ollama"`, `""`, 1),
		strings.Replace(upstreamSpec("http://127.0.0.1:1"), `{"loop`, `{"mode":"none","loop`, 1), `"kind":"browser",` + upstreamSpec("http://127.0.0.1:1"),
		strings.Replace(upstreamSpec("http://127.0.0.1:9999"), `{"loop`, `{"harness":{"upstream":"tcp:127.0.0.1:9999"},"loop`, 1),
	} {
		if out := p.turn(fields, "true"); out.Code != 100 || !strings.Contains(out.Stderr, "reason: bad_spec") || !strings.Contains(out.Stderr, "loopback_upstreams") {
			t.Errorf("%s: %+v", fields, out)
		}
	}
	if out := p.turn(`"profile":{"keys":"none"},`+upstreamSpec("http://127.0.0.1:1"), "true"); out.Code != 0 {
		t.Errorf("a bot without keys may call one: %+v", out)
	}
}
