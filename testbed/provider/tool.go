package provider

import (
	"encoding/json"
	"slices"
	"strings"
)

// shells are the tools by which engines run a shell command. The first one
// that a request offers is called.
var shells = []struct{ engine, name, argument string }{
	{"Claude Code", "Bash", "command"},
	{"Codex", "exec_command", "cmd"},
	{"Gemini CLI", "run_shell_command", "command"},
	{"OpenCode, Grok CLI", "bash", "command"},
}

// toolCall is a call that the reply makes.
type toolCall struct {
	name string
	args obj
}

// arguments gives the arguments as the JSON text that most providers send.
func (c *toolCall) arguments() string {
	b, _ := json.Marshal(c.args) // a map of strings always encodes
	return string(b)
}

// choose gives the call to make, or nil to end the turn with text: when no
// command was set, when a tool has answered already, and when the request
// offers no shell (engines ask for a title that way).
func choose(command string, ask obj) *toolCall {
	if command == "" || slices.ContainsFunc([]string{"messages", "input", "contents"},
		func(part string) bool { return find(ask[part], isResult) }) {
		return nil
	}
	for _, sh := range shells {
		if find(ask["tools"], func(o obj) bool { return o["name"] == sh.name }) {
			return &toolCall{sh.name, obj{sh.argument: command}}
		}
	}
	return nil
}

// calls gives the calls to make: none after a tool has answered, and none when
// the request offers no tools of MCP servers.
func (o Options) calls(ask obj) []Call {
	offered := find(ask["tools"], func(t obj) bool {
		name, _ := t["name"].(string)
		return strings.HasPrefix(name, "mcp__")
	})
	if !offered || find(ask["messages"], isResult) {
		return nil
	}
	return o.Calls
}

// isResult knows a tool's answer in each provider's form.
func isResult(o obj) bool {
	_, google := o["functionResponse"]
	return google || o["type"] == "tool_result" || o["type"] == "function_call_output" || o["role"] == "tool"
}

// find looks for an object anywhere in v.
func find(v any, is func(obj) bool) bool {
	switch v := v.(type) {
	case obj:
		if is(v) {
			return true
		}
		for _, inner := range v {
			if find(inner, is) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(inner any) bool { return find(inner, is) })
	}
	return false
}
