// Package engine recognises which engine a command line starts.
//
// Zone: worker.
//
// Given: a command line that is about to run in a box, and where its first
// word leads to.
//
// Authority: none; names only.
//
// Refuses: to guess. A command that it does not know is no engine, and its
// keys are brokered by the environment alone. A shell's line, env and sudo are
// among those: --engine names what they start.
package engine

import (
	"path"
	"slices"
	"strings"
)

// programs are the engines' own, and the npm packages that bring them.
var programs = []struct{ engine, program, npm string }{
	{"claude", "claude", "@anthropic-ai/claude-code"},
	{"codex", "codex", "@openai/codex"},
	{"gemini", "gemini", "@google/gemini-cli"},
	{"opencode", "opencode", "opencode-ai"},
	{"grok", "grok", "@vibe-kit/grok-cli"},
	{"antigravity", "agy", ""},
}

// interpreters run the file that their first plain word names; launchers run
// the npm package of that name, and pass the words after it on.
var (
	interpreters = []string{"node", "nodejs", "bun", "deno"}
	launchers    = []string{"npx", "bunx"}
)

// Of names the engine that argv starts, or "none". resolve gives the file that
// a word leads to in the end, through PATH and symbolic links, or ""; nil
// looks at the words alone.
func Of(argv []string, resolve func(word string) string) string {
	if n := Words(argv); n > 1 {
		return ofScript(argv[0], argv[n-1])
	}
	if len(argv) == 0 {
		return "none"
	}
	if name := ofProgram(argv[0]); name != "none" || resolve == nil {
		return name
	}
	file := resolve(argv[0])
	if name := ofPackageFile(file); name != "none" {
		return name
	}
	return ofProgram(file)
}

// hosts run what their own arguments say: what is added to an engine's command
// line would be theirs.
var hosts = []string{"sh", "bash", "dash", "ash", "ksh", "zsh", "fish", "env", "nice", "nohup", "setsid", "stdbuf", "time", "timeout", "xargs", "python", "python3", "perl", "ruby"}

// Takes tells whether an engine's arguments can be added to argv: not where
// another program reads them, nor to an interpreter of a script that is no
// engine's. A program of any other name may be an engine's wrapper.
func Takes(argv []string) bool {
	if Words(argv) != 1 {
		return len(argv) > 0
	}
	tool := path.Base(argv[0])
	return !slices.Contains(hosts, tool) && !slices.Contains(interpreters, tool) && !slices.Contains(launchers, tool)
}

// Words tells how many of argv's words name the program: one, or for an
// interpreter and a launcher those up to the program's own. What is added to
// an engine's command line goes after them.
func Words(argv []string) int {
	if len(argv) == 0 {
		return 0
	}
	tool := path.Base(argv[0])
	if !slices.Contains(interpreters, tool) && !slices.Contains(launchers, tool) {
		return 1
	}
	for i, word := range argv[1:] {
		if strings.HasPrefix(word, "-") {
			continue // an option; one with a value of its own ends in "none"
		}
		if ofScript(argv[0], word) == "none" {
			return 1
		}
		return i + 2
	}
	return 1
}

func ofScript(tool, word string) string {
	if !slices.Contains(launchers, path.Base(tool)) {
		if name := ofPackageFile(word); name != "none" {
			return name
		}
		return ofProgram(word)
	}
	pkg := word
	if at := strings.LastIndex(word, "@"); at > 0 { // a version, not a scope
		pkg = word[:at]
	}
	for _, p := range programs {
		if p.npm != "" && pkg == p.npm {
			return p.engine
		}
	}
	return "none"
}

// ofProgram goes by a program's name. Two of the npm packages link it to a
// file that ends as on Windows.
func ofProgram(file string) string {
	name := strings.TrimSuffix(path.Base(file), ".exe")
	for _, p := range programs {
		if name == p.program {
			return p.engine
		}
	}
	return "none"
}

// ofPackageFile knows a file of an engine's npm package by its folder.
func ofPackageFile(file string) string {
	for _, p := range programs {
		if p.npm != "" && strings.Contains(file, "/node_modules/"+p.npm+"/") {
			return p.engine
		}
	}
	return "none"
}
