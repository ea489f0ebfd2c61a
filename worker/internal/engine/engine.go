// Package engine recognises which engine a command line starts.
//
// Zone: worker.
//
// Given: a command line that is about to run in a box.
//
// Authority: none; names only.
//
// Refuses: to guess. A command that it does not know is no engine, and its
// keys are brokered by the environment alone.
package engine

import "path/filepath"

// byName are the engines' own programs.
var byName = map[string]string{
	"claude":   "claude",
	"codex":    "codex",
	"gemini":   "gemini",
	"opencode": "opencode",
	"grok":     "grok",
	"agy":      "antigravity",
}

// Of names the engine that argv starts, or "none".
func Of(argv []string) string {
	if len(argv) == 0 {
		return "none"
	}
	if name, ok := byName[filepath.Base(argv[0])]; ok {
		return name
	}
	return "none"
}
