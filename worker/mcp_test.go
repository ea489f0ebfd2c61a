package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/mcpserver"
	"github.com/openmausbot/botbox/testbed/provider"
	"github.com/openmausbot/botbox/testbed/rig"
)

const (
	mcpHalfA = "Bearer sk-mcp-canary-"
	mcpHalfB = "b1f0c6d29a7e4385"
)

// forms are the ways in which a server is configured, and answers.
var forms = []struct {
	name         string
	target, from string // /R stands for the server's own place
	events       bool
}{
	{"plain", "/R/mcp", "", false},
	{"slash", "/R/mcp/", "", false},
	{"query", "/R/mcp?tenant=a;b&x=%7e&x=2", "", false},
	{"redirect", "/R/mcp/", "/R/go", false},
	{"events", "/R/mcp", "", true},
}

// fleet is one strict server for each revision and form.
type fleet struct {
	*httptest.Server
	servers map[string]*mcpserver.Server
	urls    map[string]string
	mu      sync.Mutex
	stray   []string // requests for none of them
}

func newFleet(t *testing.T) *fleet {
	all := map[string]mcpserver.Options{}
	for _, revision := range mcpserver.Revisions {
		for _, form := range forms {
			name := "r" + strings.ReplaceAll(revision, "-", "") + "-" + form.name
			all[name] = mcpserver.Options{
				Revision: revision, Target: strings.Replace(form.target, "R", name, 1), From: strings.Replace(form.from, "R", name, 1),
				Events: form.events, Absolute: form.events,
			}
		}
	}
	return startFleet(t, all)
}

func startFleet(t *testing.T, all map[string]mcpserver.Options) *fleet {
	f := &fleet{servers: map[string]*mcpserver.Server{}, urls: map[string]string{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, s := range f.servers {
			if s.Serves(r.RequestURI) {
				s.ServeHTTP(w, r)
				return
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stray = append(f.stray, r.Method+" "+r.RequestURI)
		http.NotFound(w, r)
	}))
	t.Cleanup(f.Close)
	for name, opt := range all {
		if opt.Target == "" {
			opt.Target = "/" + name + "/mcp"
		}
		opt.Header, opt.Value = "Authorization", mcpHalfA+mcpHalfB
		f.servers[name] = mcpserver.New(opt)
		f.urls[name] = f.URL + opt.Target
		if opt.From != "" {
			f.urls[name] = f.URL + opt.From
		}
	}
	return f
}

func (f *fleet) names() []string {
	var names []string
	for name := range f.servers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// list is the fleet as a spec has it.
func (f *fleet) list() []any {
	var all []any
	for _, name := range f.names() {
		all = append(all, map[string]any{"name": name, "url": f.urls[name], "headers": map[string]string{"Authorization": mcpHalfA + mcpHalfB}})
	}
	return all
}

// check wants every server to have been talked to, and nothing to be wrong.
func (f *fleet) check(t *testing.T) {
	t.Helper()
	for name, s := range f.servers {
		if faults := s.Faults(); len(faults) > 0 || len(s.Requests()) == 0 {
			t.Errorf("%s: %d requests, faults %v", name, len(s.Requests()), faults)
		}
	}
	if len(f.stray) > 0 {
		t.Errorf("requests for no server: %v", f.stray)
	}
}

// mcpSpec writes a spec for a turn with URL servers.
func (p *place) mcpSpec(change map[string]any) string {
	p.t.Helper()
	s := map[string]any{"cwd": p.work, "bot": "bot", "conversation": "talk"}
	for name, v := range change {
		s[name] = v
	}
	b, err := json.Marshal(s)
	if err != nil {
		p.t.Fatal(err)
	}
	path := fmt.Sprintf("%s/spec%d.json", p.top, time.Now().UnixNano())
	rig.Write(p.t, path, string(b))
	return path
}

// mcpClients builds the two SDKs' clients, which are a module of their own.
func mcpClients(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(dir, "mcpclients")
	cmd := exec.Command("go", "build", "-o", to, ".")
	cmd.Dir = filepath.Join(rig.Root(), "testbed/mcpclients")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		rig.Missing(t, "the MCP clients cannot be built: %v: %s", err, out)
	}
	return to
}

var mcpToken = regexp.MustCompile(`omb_t0_[A-Za-z0-9_-]{43}`)

// Five revisions in five forms, by two SDKs in a real box.
func TestMCPClientsWorkInABox(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		clients := mcpClients(t, p.top)
		for _, sdk := range []string{"sdk", "mcpgo"} {
			f := newFleet(t)
			out := rig.Run(t, p.botbox(nil, with(run, "--json", "--spec", p.mcpSpec(map[string]any{
				"argv": []string{clients, sdk}, "paths": map[string]any{"ro": []string{clients}}, "broker": map[string]any{"mcp": f.list()},
			}))...))
			want := map[string]string{}
			for _, name := range f.names() {
				revision := name[1:5] + "-" + name[5:7] + "-" + name[7:9]
				want[strings.ToUpper(strings.ReplaceAll(name, "-", "_"))] = "ok " + revision + " says hello"
			}
			for line := range strings.Lines(out.Stdout) {
				name, said, _ := strings.Cut(strings.TrimSpace(line), " ")
				if said != want[name] {
					t.Errorf("%s: %s %s", sdk, name, said)
				}
				delete(want, name)
			}
			if len(want) > 0 || out.Code != 0 {
				t.Errorf("%s: nothing of %v: %+v", sdk, want, out)
			}
			f.check(t)
			var answer struct {
				MCPAddresses map[string]string `json:"mcp_addresses"`
			}
			if json.Unmarshal([]byte(out.Stderr), &answer) != nil || len(answer.MCPAddresses) != len(f.servers) {
				t.Errorf("the answer: %.400s", out.Stderr)
			}
			for name, address := range answer.MCPAddresses {
				if !strings.HasSuffix(address, "/mcp-"+name) || !strings.HasPrefix(address, "http://127.0.0.1:18080/b/omb_t0_") {
					t.Errorf("%s: %s", name, address)
				}
			}
		}
	})
}

// claudeConfig is a configuration that is the same in every turn: the engine
// reads the addresses where every program of a box finds them.
func claudeConfig(names []string) string {
	servers := map[string]any{}
	for _, name := range names {
		kind := "http"
		if strings.HasPrefix(name, "r2024") {
			kind = "sse"
		}
		servers[name] = map[string]string{"type": kind, "url": "${BOTBOX_MCP_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "}"}
	}
	b, _ := json.Marshal(map[string]any{"mcpServers": servers})
	return string(b)
}

// claudeTurn runs one turn of the real engine that calls echo of every server,
// and gives its words and what the model was told.
func claudeTurn(t *testing.T, p *place, run []string, f *fleet, home string) (out rig.Output, told string, sent []provider.Request) {
	t.Helper()
	engine, claude := install(t, "claude")
	var calls []provider.Call
	for _, name := range f.names() {
		calls = append(calls, provider.Call{Name: "mcp__" + name + "__echo", Args: map[string]any{"text": "hello from " + name}})
	}
	model := provider.New(provider.Options{Key: keyHalfA + keyHalfB, Calls: calls, Reply: "The turn is complete."})
	upstream := httptest.NewServer(model)
	defer upstream.Close()
	spec := p.mcpSpec(map[string]any{
		"engine": "claude", "home": map[string]string{"mode": "engine", "path": home},
		"argv": []string{claude, "-p", "hello", "--dangerously-skip-permissions", "--strict-mcp-config", "--mcp-config", claudeConfig(f.names()), "--output-format", "stream-json", "--verbose"},
		"env": map[string]string{
			"ANTHROPIC_API_KEY": keyHalfA + keyHalfB, "ANTHROPIC_BASE_URL": upstream.URL, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
			"MCP_TIMEOUT": "20000", "ENABLE_TOOL_SEARCH": "false",
		},
		"env_extra_names": []string{"ENABLE_TOOL_SEARCH"},
		"paths":           map[string]any{"ro": []string{engine}}, "broker": map[string]any{"mcp": f.list()},
	})
	out = rig.Run(t, p.botbox(nil, with(run, "--spec", spec)...))
	sent = model.Requests()
	if len(sent) == 0 {
		t.Fatalf("the engine asked no model: %+v", out)
	}
	return out, sent[len(sent)-1].Body, sent
}

// The real engine, through the real box: five revisions in five forms.
func TestClaudeCodeUsesMCPServers(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		f := newFleet(t)
		home := p.folder(filepath.Join(p.top, "engine"))
		out, told, sent := claudeTurn(t, p, run, f, home)
		if out.Code != 0 || !strings.Contains(out.Stdout, "The turn is complete.") {
			t.Fatalf("%+v", out)
		}
		for _, name := range f.names() {
			revision := name[1:5] + "-" + name[5:7] + "-" + name[7:9]
			if want := revision + " says hello from " + name; !strings.Contains(told, want) {
				t.Errorf("the model was not told %q", want)
			}
		}
		f.check(t)
		for place, what := range sweepTurn(out, sent, home, p.work) {
			t.Errorf("%s holds %s", place, what)
		}
	})
}

// sweepTurn looks for tokens, keys and what is left of a sign-in in all that
// the engine showed or kept, and gives where it found one.
func sweepTurn(out rig.Output, sent []provider.Request, dirs ...string) map[string]string {
	places, found := map[string]string{"stdout": out.Stdout, "stderr": out.Stderr}, map[string]string{}
	for i, r := range sent {
		places[fmt.Sprint("what the model was told, request ", i)] = r.Body
	}
	for _, dir := range dirs {
		filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				b, _ := os.ReadFile(path)
				places[path] = string(b)
			}
			return err
		})
	}
	for name, text := range places {
		if i := mcpToken.FindStringIndex(text); i != nil {
			found[name] = "a token: " + text[max(0, i[0]-100):i[1]]
		}
		for _, needle := range []string{mcpHalfB, keyHalfB, "mcpOAuth", "oauth-protected-resource", "/b/omb_"} {
			if strings.Contains(text, needle) {
				found[name] = needle
			}
		}
	}
	return found
}

// The sweep finds what an engine would show or keep: the control of the test
// above.
func TestTheTurnsSweepFinds(t *testing.T) {
	p := newPlace(t)
	f := startFleet(t, map[string]mcpserver.Options{"notes": {Revision: "2025-11-25"}})
	home := p.folder(filepath.Join(p.top, "engine"))
	out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--spec", p.mcpSpec(map[string]any{
		"argv": []string{"sh", "-c", `echo $BOTBOX_MCP_NOTES; echo $BOTBOX_MCP_NOTES >&2; echo $BOTBOX_MCP_NOTES >~/kept; echo '{"mcpOAuth":{}}' >auth`},
		"home": map[string]string{"mode": "engine", "path": home}, "broker": map[string]any{"mcp": f.list()},
	})))
	sent := []provider.Request{{Body: "I use " + out.Stdout}}
	found := sweepTurn(out, sent, home, p.work)
	for _, place := range []string{"stdout", "stderr", filepath.Join(home, "kept"), filepath.Join(p.work, "auth"), "what the model was told, request 0"} {
		if found[place] == "" {
			t.Errorf("nothing was found in %s: %+v", place, out)
		}
	}
}

// A server that wants another key, on each method in turn: the engine's turn
// goes on, the words are there, and nobody else is asked for anything.
func TestClaudeCodeLivesWithRefusals(t *testing.T) {
	p := newPlace(t)
	p.serve("ANTHROPIC_API_KEY=unused")
	all := map[string]mcpserver.Options{"good": {Revision: "2025-11-25"}}
	for _, revision := range []string{"2024-11-05", "2025-11-25", "2026-07-28"} {
		for _, method := range []string{"GET", "POST", "DELETE", "server/discover", "initialize", "notifications/initialized", "tools/list", "tools/call"} {
			if method == "POST" || revision == "2024-11-05" && method == "GET" {
				continue
			}
			name := "r" + strings.ReplaceAll(revision, "-", "") + "-" + strings.ToLower(strings.ReplaceAll(method, "/", "-"))
			all[name] = mcpserver.Options{Revision: revision, Refuse: method}
		}
	}
	f := startFleet(t, all)
	home := p.folder(filepath.Join(p.top, "engine"))
	out, told, sent := claudeTurn(t, p, []string{"run"}, f, home)
	if out.Code != 0 || !strings.Contains(out.Stdout, "The turn is complete.") || !strings.Contains(told, "2025-11-25 says hello from good") {
		t.Fatalf("%+v", out)
	}
	for name, opt := range all {
		if words := "The MCP server " + name + " refused the key that it was given (HTTP 401)"; opt.Refuse == "tools/call" && !strings.Contains(told, words) {
			t.Errorf("the model was not told %q", words)
		}
	}
	if len(f.stray) > 0 {
		t.Errorf("somebody looked for a sign-in: %v", f.stray)
	}
	for place, what := range sweepTurn(out, sent, home, p.work) {
		t.Errorf("%s holds %s", place, what)
	}
	// A server that did not start: the engine keeps the words to itself, and the
	// chat gets them from the worker.
	for _, name := range []string{"r20251125-initialize", "r20251125-tools-list", "r20241105-initialize"} {
		status, answer := p.api("POST", "/v1/conversations/talk/mcp-failed", `{"bot":"bot","server":"`+name+`"}`)
		if want := name + " didn't connect (it refused its key, HTTP 401); it connects again on the next message."; status != 200 || !strings.Contains(answer, want) || !strings.Contains(answer, `"code":"mcp_start_failed"`) {
			t.Errorf("%d %s", status, answer)
		}
	}
	// Nothing else was contacted: not the broker's root, and no host.
	lines := rig.Run(t, p.botbox(nil, "audit", "--json"))
	refused, boxes := 0, p.boxesOf("talk")
	for line := range strings.Lines(lines.Stdout) {
		var e struct{ Box, Code, Kind string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if boxes[e.Box] && e.Code == "not_found" {
			t.Errorf("something was looked for at the broker's root: %s", line)
		}
		if boxes[e.Box] && e.Code == "mcp_unauthorized" {
			refused++
		}
	}
	if refused < len(all)/2 {
		t.Errorf("control: %d refusals in the audit log", refused)
	}
	if went := p.wentTo("talk"); len(went) > 0 {
		t.Errorf("the engine went elsewhere: %v", went)
	}
	rig.Run(t, p.botbox(nil, "run", "--conversation", "control", "--", "curl", "-s", "-m", "5", "http://192.0.2.1/"))
	if went := p.wentTo("control"); len(went) == 0 {
		t.Error("control: the worker keeps nothing of where boxes go")
	}
}

// boxesOf gives the names of a conversation's boxes.
func (p *place) boxesOf(conversation string) map[string]bool {
	p.t.Helper()
	boxes := map[string]bool{}
	for line := range strings.Lines(rig.Run(p.t, p.botbox(nil, "logs", "--json")).Stdout) {
		var e struct{ Box, Conversation string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Conversation == conversation {
			boxes[e.Box] = true
		}
	}
	return boxes
}

// wentTo gives what the gates of a conversation's boxes decided.
func (p *place) wentTo(conversation string) (hosts []string) {
	p.t.Helper()
	boxes := p.boxesOf(conversation)
	for line := range strings.Lines(rig.Run(p.t, p.botbox(nil, "logs", "--json")).Stdout) {
		var e struct{ Box, Verdict, Host string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			p.t.Errorf("%s: %v", line, err)
		}
		if boxes[e.Box] && e.Verdict != "" {
			hosts = append(hosts, e.Host)
		}
	}
	return hosts
}
