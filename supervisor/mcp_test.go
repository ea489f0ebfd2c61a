package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/openmausbot/botbox/testbed/mcpserver"
	"github.com/openmausbot/botbox/testbed/rig"
)

// mcpTurns are two turns of one conversation, with a worker that is killed in
// between: the first begins an MCP session and the second goes on in it.
const mcpTurns = `
turn() { "$BIN/botbox" run --spec "$SPEC" 2>>"$WORK/said" || echo "status $?"; }
turn
echo between
until [ -e "$WORK/killed" ]; do sleep 0.1; done
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do "$BIN/botbox" ps >/dev/null 2>&1 && break; sleep 0.5; done
turn`

const mcpInside = `
ask() { curl -s -m 20 -H 'Content-Type: application/json' -H 'Accept: application/json' -H 'Mcp-Protocol-Version: 2025-11-25' "$@" "$BOTBOX_MCP_NOTES"; echo; }
echo "at $BOTBOX_MCP_NOTES"
[ -f session ] || ask -D head -d '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}' >/dev/null
[ -f session ] || sed -n 's/\r//; s/^[Mm]cp-[Ss]ession-[Ii]d: //p' head >session
ask -H "Mcp-Session-Id: $(cat session)" -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}'`

// A worker that dies in the middle of a conversation takes neither the
// addresses of its MCP servers with it, nor the sessions.
func TestMCPAddressesOutliveAWorker(t *testing.T) {
	m := mcpserver.New(mcpserver.Options{Revision: "2025-11-25", Target: "/mcp", Header: "Authorization", Value: "Bearer sk-canary-mcp-000111"})
	upstream := httptest.NewServer(m)
	defer upstream.Close()
	work := rig.Dir(t)
	if err := os.Chmod(work, 0o755); err != nil {
		t.Fatal(err)
	}
	spec, _ := json.Marshal(map[string]any{
		"argv": []string{"sh", "-c", mcpInside}, "cwd": work, "bot": "bot", "conversation": "talk",
		"broker": map[string]any{"mcp": []any{map[string]any{
			"name": "notes", "url": upstream.URL + "/mcp", "headers": map[string]string{"Authorization": "Bearer sk-canary-mcp-000111"}}}},
	})
	rig.Write(t, filepath.Join(work, "spec.json"), string(spec))
	r := realWorld(t, true, []string{"SPEC=" + work + "/spec.json", "WORK=" + work}, "--plain", "--", "sh", "-c", mcpTurns)
	r.await(t, "the first turn's end", func() bool { return strings.Contains(r.stdout.String(), "between") })
	killed := 0
	for _, pid := range descendants(r.Process.Pid) {
		if text := read(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(text, "botbox\x00serve\x00--control") {
			send(t, pid, syscall.SIGKILL)
			killed++
		}
	}
	rig.Write(t, filepath.Join(work, "killed"), "")
	status := r.status(t)
	said, _ := os.ReadFile(filepath.Join(work, "said"))
	var at, answers []string
	for line := range strings.Lines(r.stdout.String()) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "at "):
			at = append(at, line)
		case strings.Contains(line, "2025-11-25 says hello"):
			answers = append(answers, line)
		}
	}
	if status != 0 || killed != 1 || len(at) != 2 || at[0] != at[1] || !strings.Contains(at[0], "/mcp-notes") || len(answers) != 2 || m.Sessions() != 1 || len(m.Faults()) > 0 {
		t.Errorf("status %d, %d killed, %d sessions, %v\nstdout: %s\nstderr: %s\nsaid: %s", status, killed, m.Sessions(), m.Faults(), r.stdout.String(), r.stderr.String(), said)
	}
}
