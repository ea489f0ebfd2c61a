package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/provider"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// rpc speaks JSON-RPC, a message a line, with an engine in a box.
type rpc struct {
	in    io.Writer
	lines chan map[string]any
	id    int
}

func dialRPC(t *testing.T, cmd *exec.Cmd) *rpc {
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	r := &rpc{in: in, lines: make(chan map[string]any, 100)}
	go func() {
		defer close(r.lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			var m map[string]any
			if json.Unmarshal(scan.Bytes(), &m) == nil {
				r.lines <- m
			}
		}
	}()
	return r
}

func (r *rpc) send(m map[string]any) {
	m["jsonrpc"] = "2.0"
	b, _ := json.Marshal(m) // maps of plain values always encode
	r.in.Write(append(b, '\n'))
}

// call asks and gives the result. What the engine asks in between is allowed:
// it is a permission to run the test's own command.
func (r *rpc) call(t *testing.T, method string, params map[string]any) map[string]any {
	t.Helper()
	r.id++
	id := r.id
	r.send(map[string]any{"id": id, "method": method, "params": params})
	m := r.until(t, method, func(m map[string]any) bool { return m["id"] == float64(id) && m["method"] == nil })
	if m["error"] != nil {
		t.Fatalf("%s: %v", method, m["error"])
	}
	result, _ := m["result"].(map[string]any)
	return result
}

func (r *rpc) until(t *testing.T, what string, is func(map[string]any) bool) map[string]any {
	t.Helper()
	late := time.After(45 * time.Second)
	for {
		select {
		case m, open := <-r.lines:
			switch {
			case !open:
				t.Fatalf("%s: the engine ended", what)
			case is(m):
				return m
			case m["method"] == "session/request_permission":
				params, _ := m["params"].(map[string]any)
				options, _ := params["options"].([]any)
				first, _ := options[0].(map[string]any)
				r.send(map[string]any{"id": m["id"], "result": map[string]any{
					"outcome": map[string]any{"outcome": "selected", "optionId": first["optionId"]}}})
			}
		case <-late:
			t.Fatalf("%s: no answer in 45 s", what)
		}
	}
}

// acp makes one turn in the Agent Client Protocol.
func acp(t *testing.T, r *rpc, work string) {
	r.call(t, "initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": map[string]any{}})
	session := r.call(t, "session/new", map[string]any{"cwd": work, "mcpServers": []any{}})
	done := r.call(t, "session/prompt", map[string]any{"sessionId": session["sessionId"],
		"prompt": []any{map[string]any{"type": "text", "text": "hello"}}})
	if done["stopReason"] != "end_turn" {
		t.Errorf("the turn ended with %v", done)
	}
}

// appServer makes one turn in Codex's own protocol.
func appServer(t *testing.T, r *rpc, work string) {
	r.call(t, "initialize", map[string]any{"clientInfo": map[string]any{"name": "test", "version": "1"}})
	r.send(map[string]any{"method": "initialized"})
	started := r.call(t, "thread/start", map[string]any{"model": "gpt-5", "cwd": work, "approvalPolicy": "never", "sandbox": "danger-full-access"})
	thread, _ := started["thread"].(map[string]any)
	r.call(t, "turn/start", map[string]any{"threadId": thread["id"],
		"input": []any{map[string]any{"type": "text", "text": "hello"}}})
	r.until(t, "turn/completed", func(m map[string]any) bool { return m["method"] == "turn/completed" })
}

// The chat server drives three engines over stdio. What is added to their
// command lines stands where they take it then, too.
func TestEnginesAreBrokeredInTheirProtocols(t *testing.T) {
	turns := []struct {
		agent string
		words []string
		do    func(*testing.T, *rpc, string)
	}{
		{"codex", []string{"app-server"}, appServer},
		{"gemini", []string{"--experimental-acp", "--yolo", "-m", "gemini-2.5-flash"}, acp},
		{"opencode", []string{"acp"}, acp},
	}
	for _, turn := range turns {
		installEngines(t, turn.agent)
	}
	if !gatetest.Inside(t) {
		return
	}
	b := newEnginesBench(t)
	hijack(t, b.work, b.attacker.url)
	for _, turn := range turns {
		t.Run(turn.agent, func(t *testing.T) {
			model := provider.New(provider.Options{Key: keyHalfA + keyHalfB, Tool: "echo the tool ran", Reply: "The turn is complete."})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			serveUntilEnd(t, l, model)
			for _, a := range agents {
				if a.name == turn.agent {
					a.words = turn.words
					turn.do(t, dialRPC(t, b.command(t, a, "auto", a.base+"=http://"+l.Addr().String()+a.version)), b.work)
				}
			}
			asked := fmt.Sprint(model.Requests())
			if !strings.Contains(asked, "the tool ran") {
				t.Errorf("the tool's result did not come back: %.1000s", asked)
			}
			for _, r := range model.Requests() {
				carriesTheKeyOnce(t, r)
			}
		})
	}
	if seen := b.attacker.taken(); len(seen) != 0 {
		t.Errorf("the project's files led an engine away: %q", seen)
	}
	log, _ := os.ReadFile(b.logFile)
	if refused := refusedHosts(log); len(refused) != 0 {
		t.Errorf("the egress gate was asked for %q", refused)
	}
}
