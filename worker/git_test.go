package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// git runs outside, as the boxes' user, in a place that a test has laid out
// and no box has written yet.
func (p *place) git(dir string, args ...string) string {
	p.t.Helper()
	out := rig.Run(p.t, rig.Command(p.t, dir, append(p.env, gitNames...), append([]string{"git"}, args...)...))
	if out.Code != 0 {
		p.t.Fatalf("git %v: %+v", args, out)
	}
	return strings.TrimSpace(out.Stdout)
}

var gitNames = []string{"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com"}

// repository makes one with a commit in the work folder, and a linked work
// tree of it in another.
func (p *place) repository() (tree string) {
	p.t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		rig.Missing(p.t, "git")
	}
	tree = filepath.Join(p.top, "tree")
	p.git(p.work, "init", "-q")
	rig.Write(p.t, filepath.Join(p.work, "f"), "1")
	p.git(p.work, "add", "f")
	p.git(p.work, "commit", "-qm", "first")
	p.git(p.work, "worktree", "add", "-q", "-b", "side", tree)
	return tree
}

const commit = `git config --list >/dev/null && echo x >>f && git -c user.name=b -c user.email=b@example.com commit -qam boxed && git log --oneline | grep -c .`

// A commit works in a repository and in a linked work tree of it (codex#19786,
// claude-code#64792), and what a later git outside would execute from cannot be
// written, moved or replaced (trailofbits/claude-code-config#48).
func TestGitInABox(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		tree := p.repository()
		git := filepath.Join(p.work, ".git")
		for name, dir := range map[string]string{"repository": p.work, "work tree": tree} {
			before := p.git(dir, "rev-list", "--count", "HEAD")
			out := rig.Run(t, p.botbox(nil, with(run, "--cwd", dir, "--", "sh", "-c", commit)...))
			if out.Code != 0 || out.Stdout == before+"\n" {
				t.Errorf("%s: commit: %+v", name, out)
			}
			if after := p.git(dir, "rev-list", "--count", "HEAD"); after == before {
				t.Errorf("%s: the commit is not there outside", name)
			}
			if status := p.git(dir, "status", "--porcelain"); status != "" {
				t.Errorf("%s: the box left something: %s", name, status)
			}
			attack := `g=` + git + `; for c in "echo x >$g/hooks/post-commit" "echo x >>$g/config" "echo x >$g/info/attributes" \
				"mv $g/hooks $g/h" "mv $g/config $g/c" "rm $g/config" "git config core.fsmonitor x" \
				"ln -f $g/config $g/link" "mv .git moved" "rm .git"; do (eval "$c") 2>/dev/null && echo "done: $c"; done; true`
			if out := rig.Run(t, p.botbox(nil, with(run, "--cwd", dir, "--", "sh", "-c", attack)...)); out.Code != 0 || out.Stdout != "" {
				t.Errorf("%s: %+v", name, out)
			}
		}
		// Positive control: outside the same file can be written.
		rig.Write(t, filepath.Join(git, "hooks/post-commit"), "#!/bin/sh\n")
	})
}

// The way to the repository is written in files that a box may have written:
// another repository is let in only if it names this folder in return.
func TestAWorkTreeThatLies(t *testing.T) {
	p := newPlace(t)
	tree := p.repository()
	victim := filepath.Join(p.top, "victim")
	p.git(p.top, "init", "-q", victim)
	rig.Write(t, filepath.Join(victim, "f"), "1")
	p.git(victim, "add", "f")
	p.git(victim, "commit", "-qm", "secret")
	p.git(victim, "worktree", "add", "-q", filepath.Join(p.top, "other"))
	entry := p.git(tree, "rev-parse", "--absolute-git-dir")
	honest, _ := os.ReadFile(filepath.Join(tree, ".git"))
	for name, lie := range map[string]func(){
		"another's work tree": func() { rig.Write(t, filepath.Join(tree, ".git"), "gitdir: "+victim+"/.git/worktrees/other\n") },
		"a repository":        func() { rig.Write(t, filepath.Join(tree, ".git"), "gitdir: "+victim+"/.git\n") },
		"a common folder":     func() { rig.Write(t, filepath.Join(entry, "commondir"), victim+"/.git\n") },
		"no path":             func() { rig.Write(t, filepath.Join(tree, ".git"), strings.Repeat("x", 1<<20)) },
	} {
		lie()
		out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--json", "--cwd", tree, "--", "sh", "-c", "ls "+victim+"/.git; git log; true"))
		if out.Code != 0 || out.Stdout != "" || !strings.Contains(out.Stderr, "git will not work in the box") {
			t.Errorf("%s: %+v", name, out)
		}
		rig.Write(t, filepath.Join(tree, ".git"), string(honest))
		rig.Write(t, filepath.Join(entry, "commondir"), "../..\n")
	}
	if out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--cwd", tree, "--", "git", "log", "--oneline")); !strings.Contains(out.Stdout, "first") {
		t.Errorf("positive control, the honest one: %+v", out)
	}
}

// Whatever is at .git, a box starts and nothing is made outside (claude-code#72748,
// codex#15725).
func TestGitFoldersOfEveryKind(t *testing.T) {
	p := newPlace(t)
	elsewhere := filepath.Join(p.top, "elsewhere")
	rig.Write(t, filepath.Join(elsewhere, "hooks/pre-commit"), "canary")
	for name, lay := range map[string]string{
		"none":              "true",
		"an empty folder":   "mkdir .git",
		"an empty file":     "touch .git",
		"a FIFO":            "mkfifo .git",
		"a link":            "ln -s " + elsewhere + " .git",
		"a dangling link":   "ln -s /oldroot" + elsewhere + "/made .git",
		"linked hooks":      "mkdir .git; ln -s " + elsewhere + "/hooks .git/hooks",
		"hooks are a file":  "mkdir .git; touch .git/hooks",
		"config is one too": "mkdir -p .git/config .git/hooks",
	} {
		rig.Run(t, rig.Command(t, p.work, p.env, "sh", "-c", lay))
		before := p.tree(p.top)
		out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--", "echo", "ran"))
		if out.Stdout != "ran\n" {
			t.Errorf("%s: %+v", name, out)
		}
		if after := p.tree(p.top); after != before {
			t.Errorf("%s: the box left\n%s\nof\n%s", name, after, before)
		}
		rig.Run(t, rig.Command(t, p.work, p.env, "rm", "-rf", ".git"))
	}
}

// tree lists everything below a folder, with kinds and sizes.
func (p *place) tree(dir string) string {
	p.t.Helper()
	found := rig.Run(p.t, rig.Command(p.t, "/", p.env, "find", dir, "-printf", "%P %y %s %l\n")).Stdout
	lines := strings.SplitAfter(found, "\n")
	slices.Sort(lines) // a file system in memory lists what was renamed anew
	return strings.Join(lines, "")
}

// Nothing of ours executes, sources or asks git about what a box has written:
// every file that programs run later is planted, a worker lives its whole life
// over them, and no tripwire fires.
func TestNothingOfOursRunsWhatABoxWrote(t *testing.T) {
	p := newPlace(t)
	fired := filepath.Join(p.top, "fired")
	wire := "#!/bin/sh\necho \"$0\" >>" + fired + "\n"
	p.repository()
	for _, name := range []string{".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".ssh/rc", ".config/fish/config.fish",
		".local/bin/git", ".local/bin/bwrap", ".local/bin/sh", ".local/bin/boxentry", ".local/bin/id"} {
		rig.Write(t, filepath.Join(p.home, name), wire)
	}
	for _, name := range []string{".git/hooks/post-checkout", ".git/hooks/post-commit", ".git/hooks/pre-commit", ".git/hooks/post-index-change", ".husky/pre-commit",
		".envrc", "node_modules/.bin/git", ".venv/bin/python", "bwrap", "git", "sh", "tripwire"} {
		rig.Write(t, filepath.Join(p.work, name), wire)
	}
	trip := filepath.Join(p.work, "tripwire")
	settings := "[core]\n\tfsmonitor = " + trip + "\n\thooksPath = " + filepath.Join(p.work, ".husky") + "\n[filter \"x\"]\n\tclean = " + trip + "\n"
	rig.Write(t, filepath.Join(p.home, ".gitconfig"), settings)
	rig.Write(t, filepath.Join(p.home, ".config/git/config"), settings)
	rig.Write(t, filepath.Join(p.work, ".gitattributes"), "* filter=x\n")
	rig.Write(t, filepath.Join(p.home, ".npmrc"), "node-options=--require "+trip+"\n")
	hooks := `{"hooks":{"SessionStart":[{"hooks":[{"type":"command","command":"` + trip + `"}]}]}}`
	rig.Write(t, filepath.Join(p.home, ".claude/settings.json"), hooks)
	rig.Write(t, filepath.Join(p.work, ".claude/settings.json"), hooks)
	rig.Write(t, filepath.Join(p.work, "Makefile"), "all:\n\t"+trip+"\n")
	rig.Write(t, filepath.Join(p.home, ".openmausbot/config.json"), "{}")
	p.serve("OMB_BOT_BOX=1")
	for _, args := range [][]string{
		{"run", "--", "true"}, {"run", "--home", "server", "--", "true"}, {"run", "--engine", "claude", "--", "true"},
		{"run", "--standalone", "--", "true"}, {"ps"}, {"report", "--json"}, {"detect"}, {"check"},
	} {
		if out := rig.Run(t, p.botbox(nil, args...)); out.Code != 0 {
			t.Errorf("%v: %+v", args, out)
		}
	}
	if b, err := os.ReadFile(fired); err == nil {
		t.Errorf("these were run outside: %s", b)
	}
	// Positive control: git and a shell by hand do run them.
	for _, argv := range [][]string{{"git", "status"}, {"bash", "-ic", "true"}} {
		os.Remove(fired)
		rig.Run(t, rig.Command(t, p.work, p.env, argv...))
		if _, err := os.Stat(fired); err != nil {
			t.Errorf("positive control: %v fires nothing", argv)
		}
	}
}
