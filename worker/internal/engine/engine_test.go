package engine

import "testing"

func TestOf(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want string
	}{
		{nil, "none"},
		{[]string{""}, "none"},
		{[]string{"claude"}, "claude"},
		{[]string{"/opt/claude/bin/claude", "-p", "hi"}, "claude"},
		{[]string{"codex", "exec"}, "codex"},
		{[]string{"gemini"}, "gemini"},
		{[]string{"opencode"}, "opencode"},
		{[]string{"grok"}, "grok"},
		{[]string{"agy"}, "antigravity"},
		{[]string{"Claude"}, "none"},
		{[]string{"claude-code"}, "none"},
		{[]string{"claude/"}, "claude"},
		{[]string{"sh", "-c", "claude"}, "none"},
		{[]string{"node", "/usr/bin/claude"}, "none"},
	} {
		if got := Of(c.argv); got != c.want {
			t.Errorf("%q: %s, want %s", c.argv, got, c.want)
		}
	}
}
