package harness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
	"github.com/openmausbot/botbox/worker/internal/gate/http1"
)

// server.js is the reader that counts: a Node server that routes with the URL
// standard's parser, as the chat server does. A line on its stdin is a target
// that it parses without any HTTP; an empty one asks for what its HTTP side served.
const serverJS = `
const read = (target) => { try { const u = new URL(target, "http://localhost:8799"); return [u.host, u.pathname] } catch { return ["", ""] } }
let inside = 0, other = []
const server = require("http").createServer((req, res) => {
	const [host, path] = read(req.url)
	if (host === "localhost:8799" && path.startsWith("/api/internal/") && path === req.url.split("?")[0]) inside++
	else other.push(req.url)
	res.end("ok")
})
server.listen(0, "127.0.0.1", () => console.log(JSON.stringify(server.address().port)))
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
	console.log(JSON.stringify(line === "" ? { inside, other } : read(line)))
}).on("close", () => process.exit(0))
`

// node is a Node process with that server in it.
type node struct {
	in   io.Writer
	out  *bufio.Reader
	Port int
}

func startNode(t testing.TB) *node {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		rig.Missing(t, "there is no node")
	}
	cmd := exec.Command(path, "-e", serverJS)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	n := &node{in: in, out: bufio.NewReader(out)}
	n.answer(t, &n.Port)
	return n
}

func (n *node) answer(t testing.TB, v any) {
	t.Helper()
	line, err := n.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, v)
	}
	if err != nil {
		t.Fatalf("node: %q, %v", line, err)
	}
}

// read asks how Node reads targets, many at once.
func (n *node) read(t testing.TB, targets []string) (out [][2]string) {
	t.Helper()
	go io.WriteString(n.in, strings.Join(targets, "\n")+"\n")
	out = make([][2]string, len(targets))
	for i := range out {
		n.answer(t, &out[i])
	}
	return out
}

func (n *node) served(t testing.TB) (inside int, other []string) {
	t.Helper()
	io.WriteString(n.in, "\n")
	var v struct {
		Inside int      `json:"inside"`
		Other  []string `json:"other"`
	}
	n.answer(t, &v)
	return v.Inside, v.Other
}

// stays tells whether a reading is the raw path itself, below the prefix, on
// the same host.
func stays(target string, reading [2]string) bool {
	raw, _, _ := strings.Cut(target, "?")
	return reading[0] == "localhost:8799" && reading[1] == raw && strings.HasPrefix(raw, prefix)
}

// pieces are what generated targets are made of. Harmless ones stand more than
// once, or hardly any target would be accepted.
var pieces = strings.Fields(`a b /x /y/z x.y - _ ~ /a /b /c @ : , = + $ & ' ( ) * %20 %C3%BC a/ v1 mcp /tools
	.. . / // /. /.. /../ /./ \ /\ ;a ..; # ? ?q=/../ ?%2e%2e %2e %2E%2e .%2e %2f %5c %25 %252e %00 %0a %7f %3f %23 %3b %c0%ae %u002e
	config api internal /api/internal/ /api/config http:// //evil @evil :80 %zz % %2 < > " { } | ^ [ ]`)

var starts = []string{prefix, prefix, prefix, prefix, prefix, prefix, "/api/internal", "/api/", "/", "//", "/\\", "/api//internal/", "/%61pi/internal/", "http://evil/api/internal/", "/api/internal%2f", ""}

func generate(r *rand.Rand) string {
	var b strings.Builder
	b.WriteString(starts[r.IntN(len(starts))])
	for range r.IntN(6) {
		if r.IntN(3) > 0 {
			b.WriteString(pieces[r.IntN(27)])
		} else {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
	}
	return b.String()
}

// corpus gives targets of visible ASCII, which is all that the head's parser
// lets through to judge.
func corpus(n int) []string {
	r := rand.New(rand.NewPCG(1, 2))
	out := append(append([]string{}, smuggled...), plain...)
	for len(out) < n {
		if target := generate(r); target != "" {
			out = append(out, target)
		}
	}
	return out
}

// What the gate accepts, Node reads as the same bytes below the prefix.
func TestNodeReadsWhatWasJudged(t *testing.T) {
	targets := corpus(30_000)
	readings := startNode(t).read(t, targets)
	accepted, byPrefix := 0, 0
	for i, target := range targets {
		in := stays(target, readings[i])
		if judge("GET", target) == nil {
			accepted++
			if !in {
				t.Errorf("%q passes, and Node reads %q", target, readings[i])
			}
		}
		// The control: a gate that looks at the raw prefix only is left.
		if strings.HasPrefix(target, prefix) && !in {
			byPrefix++
		}
	}
	t.Logf("%d of %d accepted; %d of those with the raw prefix leave it", accepted, len(targets), byPrefix)
	if accepted < len(targets)/5 || accepted > len(targets)*4/5 || byPrefix < len(targets)/50 {
		t.Error("the corpus shows nothing")
	}
}

// No request reaches another route of a real Node server through the gate.
func TestNodeServer(t *testing.T) {
	n := startNode(t)
	upstream := fmt.Sprintf("127.0.0.1:%d", n.Port)
	address, _ := start(t, nil, Options{Upstream: "tcp:" + upstream})
	if len(smuggled) < 40 {
		t.Errorf("%d ways out, at least 40", len(smuggled))
	}
	passed := 0
	for _, target := range corpus(3000) {
		answer := gatetest.Ask(t, address, "GET "+target+" HTTP/1.1\r\nHost: evil\r\n\r\n")
		if strings.HasPrefix(answer, "HTTP/1.1 200 ") {
			passed++
		} else if !strings.HasPrefix(answer, "HTTP/1.1 403 botbox: ") {
			t.Errorf("%q: %.60q", target, answer)
		}
	}
	inside, other := n.served(t)
	if len(other) != 0 || inside != passed || passed < 500 {
		t.Errorf("%d passed, %d served inside, others %q", passed, inside, other)
	}
	// The control: the same spellings without the gate do reach others.
	at := netip.MustParseAddrPort(upstream).String()
	for _, target := range smuggled {
		c := gatetest.Dial(t, at)
		gatetest.Send(t, c, "GET "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		io.Copy(io.Discard, c)
		c.Close()
	}
	if _, other := n.served(t); len(other) < 40 {
		t.Errorf("without the gate only %d reach another route", len(other))
	}
}

// FuzzNode is TestNodeReadsWhatWasJudged with targets that the fuzzer makes.
func FuzzNode(f *testing.F) {
	for _, target := range corpus(200) {
		f.Add(target)
	}
	n := startNode(f)
	f.Fuzz(func(t *testing.T, target string) {
		line := "GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n"
		req, err := http1.ReadRequest(bufio.NewReader(strings.NewReader(line)))
		if err != nil || req.Target != target || judge("GET", target) != nil {
			return
		}
		if reading := n.read(t, []string{target})[0]; !stays(target, reading) {
			t.Errorf("%q passes, and Node reads %q", target, reading)
		}
	})
}
