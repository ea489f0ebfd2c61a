package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/mcpserver"
	"github.com/openmausbot/botbox/testbed/rig"
)

// mcpAsk makes one call in a box, in the session that the work folder names.
const mcpAsk = `
ask() { curl -s -m 20 -H 'Content-Type: application/json' -H 'Accept: application/json' -H 'Mcp-Protocol-Version: 2025-11-25' "$@"; }
if [ ! -f session ]; then
	ask -D head -o init -d '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}' "$BOTBOX_MCP_NOTES"
	sed -n 's/\r//; s/^[Mm]cp-[Ss]ession-[Ii]d: //p' head >session
fi
echo "$BOTBOX_MCP_NOTES"
ask -H "Mcp-Session-Id: $(cat session)" -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}' "$BOTBOX_MCP_NOTES"
`

// A conversation keeps its addresses and its MCP session from turn to turn,
// and gets others when its servers change or one did not start.
func TestAConversationKeepsItsMCPSession(t *testing.T) {
	p := newPlace(t)
	p.serve("ANTHROPIC_API_KEY=unused")
	f := startFleet(t, map[string]mcpserver.Options{"notes": {Revision: "2025-11-25"}, "more": {Revision: "2025-11-25"}})
	notes := f.list()[1:] // sorted: more, notes
	turn := func(list []any, script string) (address, said string) {
		t.Helper()
		out := rig.Run(t, p.botbox(nil, "run", "--spec", p.mcpSpec(map[string]any{
			"argv": []string{"sh", "-c", script}, "broker": map[string]any{"mcp": list},
		})))
		address, said, _ = strings.Cut(strings.TrimSpace(out.Stdout), "\n")
		if out.Code != 0 || !strings.HasPrefix(address, "http://127.0.0.1:18080/b/omb_t0_") {
			t.Fatalf("%+v", out)
		}
		return address, said
	}
	first, said := turn(notes, mcpAsk)
	if !strings.Contains(said, "2025-11-25 says hello") {
		t.Fatalf("control: %s", said)
	}
	second, said := turn(notes, mcpAsk)
	if second != first || !strings.Contains(said, "2025-11-25 says hello") || f.servers["notes"].Sessions() != 1 {
		t.Errorf("the second turn: %v, %d sessions: %s", second == first, f.servers["notes"].Sessions(), said)
	}

	ahead := func(list []any) (address string, isNew bool) {
		t.Helper()
		b, _ := json.Marshal(map[string]any{"bot": "bot", "mcp": list})
		status, answer := p.api("POST", "/v1/conversations/talk/mcp", string(b))
		var a struct {
			Addresses map[string]string `json:"mcp_addresses"`
			Env       map[string]string
			New       bool
			Expires   time.Time
		}
		if json.Unmarshal([]byte(answer), &a) != nil || status != 200 || a.Env["notes"] != "BOTBOX_MCP_NOTES" || time.Until(a.Expires) < 20*time.Hour {
			t.Fatalf("%d %s", status, answer)
		}
		return a.Addresses["notes"], a.New
	}
	if told, isNew := ahead(notes); told != first || isNew {
		t.Errorf("ahead of the third turn: %v %v", told == first, isNew)
	}
	if _, answer := p.api("POST", "/v1/conversations/talk/mcp-failed", `{"server":"notes"}`); !strings.Contains(answer, "notes didn't connect; it connects again on the next message.") {
		t.Errorf("%s", answer)
	}
	told, isNew := ahead(notes)
	third, said := turn(notes, mcpAsk)
	if !isNew || told == first || third != told || !strings.Contains(said, "2025-11-25 says hello") {
		t.Errorf("after a failure: new %v, another %v, as told %v: %s", isNew, told != first, third == told, said)
	}
	fourth, _ := turn(f.list(), mcpAsk)
	if fourth == third {
		t.Error("with one more server the address is the same")
	}
	// The old one is dead also in the box of the next turn, and tells so in words.
	_, said = turn(f.list(), `echo "$BOTBOX_MCP_NOTES"; curl -s -d '{"id":1,"method":"tools/call"}' `+third)
	if !strings.Contains(said, `"isError":true`) || !strings.Contains(said, "was replaced") {
		t.Errorf("%s", said)
	}
	if faults := f.servers["notes"].Faults(); len(faults) > 0 {
		t.Errorf("%v", faults)
	}

	for path, c := range map[string]struct {
		body   string
		status int
	}{
		"talk/mcp":           {`{"mcp":[{"name":"a/b","url":"http://a/"}]}`, 400},
		"talk2/mcp":          {`{"mcp":[{"name":"a"}]}`, 400},
		"talk3/mcp":          {`{"mcp":[{"name":"a","url":"http://u:canary@a/"}]}`, 400},
		"talk4/mcp":          {`{"mcp":[{"name":"a","url":"http://a/","headers":{"X-A":{"secret":"ref:none"}}}]}`, 400},
		"talk5/mcp":          {`{"servers":[]}`, 400},
		"a%2Fb/mcp":          {`{"mcp":[{"name":"a","url":"http://a/"}]}`, 400},
		"nobody/mcp-failed":  {`{"server":"notes"}`, 404},
		"nobody2/mcp-failed": {`{"server":"a/b"}`, 400},
		"talk/mcp-failed":    {`{}`, 400},
	} {
		status, answer := p.api("POST", "/v1/conversations/"+path, c.body)
		if status != c.status || strings.Contains(answer, "canary") || !strings.Contains(answer, `"hint":"`) {
			t.Errorf("%s %s: %d %s", path, c.body, status, answer)
		}
	}
}

// The specs that cannot have URL servers are told so.
func TestMCPSpecsThatAreRefused(t *testing.T) {
	p := newPlace(t)
	server := []any{map[string]any{"name": "notes", "url": "http://127.0.0.1:1/mcp"}}
	for what, change := range map[string]map[string]any{
		"no network":    {"net": map[string]string{"mode": "none"}},
		"no keys":       {"profile": map[string]string{"keys": "none"}},
		"a bad name":    {"broker": map[string]any{"mcp": []any{map[string]any{"name": "a b", "url": "http://a/"}}}},
		"a bad address": {"broker": map[string]any{"mcp": []any{map[string]any{"name": "a", "url": "ftp://a/"}}}},
		"a bad header":  {"broker": map[string]any{"mcp": []any{map[string]any{"name": "a", "url": "http://a/", "headers": map[string]string{"Host": "canary"}}}}},
		"two of a name": {"broker": map[string]any{"mcp": append(server, server...)}},
		"no such secret": {"broker": map[string]any{"mcp": []any{map[string]any{"name": "a", "url": "http://a/", "headers": map[string]any{
			"X-A": map[string]string{"secret": "ref:none"}}}}}},
	} {
		spec := map[string]any{"argv": []string{"true"}, "broker": map[string]any{"mcp": server}}
		for name, v := range change {
			spec[name] = v
		}
		out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--spec", p.mcpSpec(spec)))
		if out.Code != 100 || !strings.Contains(out.Stderr, "reason: bad_spec") || strings.Contains(out.Stderr, "canary") {
			t.Errorf("%s: %+v", what, out)
		}
	}
	if out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--spec", p.mcpSpec(map[string]any{"argv": []string{"sh", "-c", "env | grep -c BOTBOX_MCP_"}, "broker": map[string]any{"mcp": server}}))); out.Stdout != "1\n" {
		t.Errorf("control: %+v", out)
	}
}

// botbox mcp test tells what a person has to know, and leaves nothing.
func TestTheMCPTest(t *testing.T) {
	p := newPlace(t)
	secrets := p.folder(filepath.Join(p.top, "secrets"))
	if err := os.Chmod(secrets, 0o700); err != nil {
		t.Fatal(err)
	}
	rig.Write(t, filepath.Join(secrets, "notes"), mcpHalfA+mcpHalfB+"\n")
	rig.Write(t, filepath.Join(secrets, "old"), "Bearer sk-old-canary\n")
	f := startFleet(t, map[string]mcpserver.Options{"notes": {Revision: "2026-07-28"}})
	if out := rig.Run(t, p.botbox(nil, "mcp", "test", f.urls["notes"])); out.Code != 100 || !strings.Contains(out.Stderr, "reason: no-worker") {
		t.Errorf("without a worker: %+v", out)
	}
	p.serve("OMB_SECRETS_DIR=" + secrets)
	for _, args := range [][]string{
		{"test", f.urls["notes"], "--header", "Authorization=ref:notes"},
		{"test", "--header", "authorization=ref:notes", f.urls["notes"]},
	} {
		out := rig.Run(t, p.botbox(nil, with([]string{"mcp"}, args...)...))
		if out.Code != 0 || !strings.Contains(out.Stdout, "Connected: 1 tools. (standin 2026-07-28, MCP 2026-07-28, ") || !strings.Contains(out.Stdout, "echo") {
			t.Errorf("%+v", out)
		}
	}
	for what, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"the wrong key":    {[]string{"test", f.urls["notes"], "--header", "Authorization=ref:old"}, 111, "reason: mcp_failed"},
		"as JSON":          {[]string{"test", f.urls["notes"], "--json"}, 111, ""},
		"no such secret":   {[]string{"test", f.urls["notes"], "--header", "Authorization=ref:none"}, 100, "reason: bad_spec"},
		"a plain value":    {[]string{"test", f.urls["notes"], "--header", "Authorization=Bearer-canary"}, 100, "reason: usage"},
		"nothing":          {[]string{}, 100, "reason: usage"},
		"another word":     {[]string{"try", "http://a/"}, 100, "reason: usage"},
		"no address":       {[]string{"test", "ftp://a/"}, 100, "reason: bad_spec"},
		"nobody there":     {[]string{"test", "http://127.0.0.1:1/mcp"}, 111, "reason: mcp_failed"},
		"a header of ours": {[]string{"test", f.urls["notes"], "--header", "Host=ref:notes"}, 100, "reason: bad_spec"},
	} {
		out := rig.Run(t, p.botbox(nil, with([]string{"mcp"}, c.args...)...))
		if out.Code != c.code || !strings.Contains(out.Stderr, c.says) || strings.Contains(out.Stdout+out.Stderr, "canary") && what != "a plain value" {
			t.Errorf("%s: %+v", what, out)
		}
	}
	status, answer := p.api("POST", "/v1/mcp/test", fmt.Sprintf(`{"name":"notes","url":%q,"headers":{"Authorization":%q}}`, f.urls["notes"], mcpHalfA+mcpHalfB))
	if status != 200 || !strings.Contains(answer, `"ok":true`) || !strings.Contains(answer, `"tools":[{"name":"echo"`) || strings.Contains(answer, mcpHalfB) {
		t.Errorf("%d %s", status, answer)
	}
	if faults := f.servers["notes"].Faults(); len(faults) > 0 {
		t.Errorf("%v", faults)
	}
}

// nodeServer is an MCP server over stdio, as people write them: it needs its
// declared variable, a cache to write to and a folder in which programs run.
const nodeServer = `#!/usr/bin/env node
const fs = require("fs"), os = require("os"), path = require("path"), { execFileSync } = require("child_process");
const tool = path.join(os.tmpdir(), "tool.sh");
fs.writeFileSync(tool, "#!/bin/sh\necho ran\n", { mode: 0o755 });
const ran = execFileSync(tool).toString().trim();
const cache = path.join(os.homedir(), ".cache", "notes");
fs.mkdirSync(cache, { recursive: true });
fs.writeFileSync(path.join(cache, "x"), "y");
const say = (m) => process.stdout.write(JSON.stringify(m) + "\n");
let rest = "";
process.stdin.on("data", (d) => {
	rest += d;
	for (let i; (i = rest.indexOf("\n")) >= 0; rest = rest.slice(i + 1)) {
		const m = JSON.parse(rest.slice(0, i));
		if (m.id === undefined) continue;
		const ok = (result) => say({ jsonrpc: "2.0", id: m.id, result });
		if (m.method === "initialize") ok({ protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "n", version: "1" } });
		else if (m.method === "tools/list") ok({ tools: [{ name: "echo", inputSchema: { type: "object" } }] });
		else if (m.method === "tools/call") ok({ content: [{ type: "text", text: [ran, process.env.NOTES_DIR, process.env.NOTES_OTHER, process.env.SECRET_OF_THE_HOST].join(" ") }] });
		else say({ jsonrpc: "2.0", id: m.id, error: { code: -32601, message: "no" } });
	}
});
`

const pythonServer = `
import json, os, subprocess, sys, tempfile
with tempfile.NamedTemporaryFile("w", delete=False) as f: f.write("#!/bin/sh\necho ran\n")
os.chmod(f.name, 0o755)
ran = subprocess.check_output([f.name]).decode().strip()
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    r = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "p", "version": "1"}},
         "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
         "tools/call": {"content": [{"type": "text", "text": " ".join([ran, os.environ.get("NOTES_DIR", ""), os.environ.get("NOTES_OTHER", ""), os.environ.get("SECRET_OF_THE_HOST", "")])}]}}.get(m["method"])
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], **({"result": r} if r else {"error": {"code": -32601, "message": "no"}})}), flush=True)
`

// Servers that the engine starts work in the box as they come: by npx from a
// package, by node and by python, with what was declared for them and nothing
// else of the host's.
func TestStdioMCPServersWorkInABox(t *testing.T) {
	for _, program := range []string{"node", "npm", "npx", "python3"} {
		if _, err := exec.LookPath("/usr/bin/" + program); err != nil {
			rig.Missing(t, "%s is not there (testbed/setup.sh test installs it)", program)
		}
	}
	ways(t, func(t *testing.T, p *place, run []string) {
		clients := mcpClients(t, p.top)
		pack := p.folder(filepath.Join(p.top, "pack"))
		rig.Write(t, filepath.Join(pack, "server.js"), nodeServer)
		rig.Write(t, filepath.Join(pack, "server.py"), pythonServer)
		rig.Write(t, filepath.Join(pack, "package.json"), `{"name":"notes-server","version":"1.0.0","bin":{"notes-server":"server.js"},"files":["server.js"]}`)
		packed := rig.Command(t, pack, p.env, "npm", "pack", "--silent")
		if out := rig.Run(t, packed); out.Code != 0 {
			t.Fatalf("%+v", out)
		}
		for what, argv := range map[string][]string{
			"npx":    {"npx", "--yes", "--offline", "--package=file:" + filepath.Join(pack, "notes-server-1.0.0.tgz"), "notes-server"},
			"node":   {"node", filepath.Join(pack, "server.js")},
			"python": {"python3", filepath.Join(pack, "server.py")},
		} {
			spec := p.mcpSpec(map[string]any{
				"argv": append([]string{clients, "stdio"}, argv...), "paths": map[string]any{"ro": []string{clients, pack}},
				"env":             map[string]string{"NOTES_DIR": "/notes", "NOTES_OTHER": "declared not", "SECRET_OF_THE_HOST": "canary", "NPM_CONFIG_UPDATE_NOTIFIER": "false"},
				"env_extra_names": []string{"NOTES_DIR", "NPM_CONFIG_UPDATE_NOTIFIER"},
			})
			out := rig.Run(t, p.botbox(nil, with(run, "--spec", spec)...))
			if out.Code != 0 || strings.TrimSpace(out.Stdout) != "ok ran /notes" {
				t.Errorf("%s: %+v", what, out)
			}
		}
	})
}
