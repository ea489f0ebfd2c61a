package engine

import (
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	const modules = "/usr/lib/node_modules/"
	for _, c := range []struct {
		argv  []string
		want  string
		words int
	}{
		{nil, "none", 0},
		{[]string{""}, "none", 1},
		{[]string{"claude"}, "claude", 1},
		{[]string{"/opt/claude/bin/claude", "-p", "hi"}, "claude", 1},
		{[]string{"/opt/claude.exe"}, "claude", 1},
		{[]string{"codex", "exec"}, "codex", 1},
		{[]string{"gemini"}, "gemini", 1},
		{[]string{"opencode"}, "opencode", 1},
		{[]string{"grok"}, "grok", 1},
		{[]string{"agy"}, "antigravity", 1},
		{[]string{"Claude"}, "none", 1},
		{[]string{"claude-code"}, "none", 1},
		{[]string{"claude/"}, "claude", 1},
		{[]string{"sh", "-c", "claude"}, "none", 1},
		{[]string{"env", "claude"}, "none", 1},

		{[]string{"node", "/usr/bin/claude"}, "claude", 2},
		{[]string{"/usr/bin/node", "--no-warnings", modules + "@google/gemini-cli/bundle/gemini.js", "-p", "x"}, "gemini", 3},
		{[]string{"node", modules + "@openai/codex/bin/codex.js"}, "codex", 2},
		{[]string{"bun", modules + "opencode-ai/bin/opencode"}, "opencode", 2},
		{[]string{"node", modules + "@vibe-kit/grok-cli/dist/index.js"}, "grok", 2},
		{[]string{"node", "cli.js", "claude"}, "none", 1},
		{[]string{"node", "--require", "x.js", "claude"}, "none", 1},
		{[]string{"node"}, "none", 1},
		{[]string{"node", "-"}, "none", 1},
		{[]string{"node", "/srv/@openai/codex/bin/codex.js"}, "none", 1},

		{[]string{"npx", "-y", "@google/gemini-cli@0.61.0", "-p", "x"}, "gemini", 3},
		{[]string{"npx", "@openai/codex"}, "codex", 2},
		{[]string{"bunx", "opencode-ai@latest"}, "opencode", 2},
		{[]string{"npx", "claude"}, "none", 1}, // another package has that name
		{[]string{"npx", "@evil/codex"}, "none", 1},
	} {
		if got := Of(c.argv, nil); got != c.want {
			t.Errorf("%q: %s, want %s", c.argv, got, c.want)
		}
		if got := Words(c.argv); got != c.words {
			t.Errorf("%q: %d words, want %d", c.argv, got, c.words)
		}
	}
}

func TestOfFollowsLinks(t *testing.T) {
	leads := map[string]string{
		"ai":     "/usr/lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe",
		"helper": "/usr/lib/node_modules/@openai/codex/bin/codex.js",
		"agent":  "/opt/agents/opencode",
		"vim":    "/usr/bin/vim.basic",
		"codex":  "/usr/bin/vim.basic", // the word itself comes first
	}
	for word, want := range map[string]string{
		"ai": "claude", "helper": "codex", "agent": "opencode", "vim": "none", "absent": "none", "codex": "codex",
	} {
		if got := Of([]string{word}, func(w string) string { return leads[w] }); got != want {
			t.Errorf("%s: %s, want %s", word, got, want)
		}
	}
}

func TestTakes(t *testing.T) {
	for command, want := range map[string]bool{
		"": false, "codex exec": true, "/opt/my-codex": true, "npx @openai/codex": true, "node /usr/bin/codex": true,
		"sh -c codex": false, "/bin/bash": false, "env codex": false, "node x.js": false, "npx x": false, "python3 x.py": false,
	} {
		if got := Takes(strings.Fields(command)); got != want {
			t.Errorf("%q: %v", command, got)
		}
	}
}
