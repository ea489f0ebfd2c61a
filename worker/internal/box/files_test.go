package box

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/worker/internal/spec"
)

// Files of an engine's settings go where nothing of the machine is, and
// nowhere else: not into a sign-in folder, a HOME or a work folder of the
// user's, which other boxes write.
func TestFilesGoIntoTheBoxsOwnHome(t *testing.T) {
	private, below := claude("private"), claude("private")
	private.Engine, below.Engine = "gemini", "gemini"
	below.Cwd = "/data/.config"
	asked := private
	asked.Paths.RW = []string{"/data/.gemini"}
	server, engine := claude("server"), claude("engine")
	server.Cwd = "/data/project"
	engine.Home.Path = "/data/engine-homes/team"
	for name, c := range map[string]struct {
		spec  spec.Spec
		files []string // of .gemini/settings.json, .config/x, .claude/settings.json
		alone map[string]bool
	}{
		"private": {private, []string{"/data/.claude/settings.json", "/data/.config/x", "/data/.gemini/settings.json"},
			map[string]bool{"gemini": true, "claude": true, "opencode": true}},
		"private, with a sign-in": {claude("private"), []string{"/data/.config/x", "/data/.gemini/settings.json"},
			map[string]bool{"claude": false, "gemini": true}},
		"a work folder in HOME": {below, []string{"/data/.claude/settings.json", "/data/.gemini/settings.json"},
			map[string]bool{"opencode": false, "gemini": true}},
		"a folder that was asked": {asked, []string{"/data/.claude/settings.json", "/data/.config/x"}, map[string]bool{"gemini": false}},
		"server":                  {server, nil, map[string]bool{"claude": false}},
		"engine":                  {engine, nil, map[string]bool{"claude": false}},
	} {
		m := debian()
		m.SSHFolders = nil
		p, err := NewPlan(c.spec, m, ports)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, file := range []string{".gemini/settings.json", ".config/x", ".claude/settings.json"} {
			p.AddFile(file, "content")
		}
		if got := slices.Sorted(maps.Keys(p.Files)); !slices.Equal(got, c.files) {
			t.Errorf("%s: files %q, want %q", name, got, c.files)
		}
		for engine, want := range c.alone {
			if p.Alone(engine) != want {
				t.Errorf("%s: %s alone is %v", name, engine, !want)
			}
		}
	}
}

func TestFilesComeAfterTheFoldersAndHoldNothing(t *testing.T) {
	s := claude("private")
	s.Engine = "gemini"
	p, err := NewPlan(s, debian(), ports)
	if err != nil {
		t.Fatal(err)
	}
	p.AddFile(".gemini/settings.json", "secret content")
	words := strings.Join(Options(p, Handles{Mounts: map[string]int{}, Files: map[string]int{"/data/.gemini/settings.json": 42}}), " ")
	at := strings.Index(words, " --perms 0600 --file 42 /data/.gemini/settings.json ")
	if at < strings.LastIndex(words, "--tmpfs") || at > strings.Index(words, "--remount-ro") || strings.Contains(words, "secret") {
		t.Errorf("%s", words)
	}
}
