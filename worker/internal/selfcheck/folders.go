package selfcheck

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/worker/internal/box"
)

// makeFolders lays out what the full profile looks for in files: a repository
// with traps in it, a folder that is to be exchanged, what stands in for the
// machine's own sockets and for /.fly, and specs' bad sources.
func (o *outside) makeFolders() error {
	o.OwnToken, o.HomeFile = o.at("data/hook-tokens/own/hook.token"), o.at("home/.ssh/id")
	o.Swapped, o.StayPipe, o.StayLock = o.at("swapped"), o.at("work/stay.pipe"), o.at("work/stay.lock")
	o.CPUFiles = box.LookAt("", "/nonexistent", "/nonexistent").CPUFiles
	for _, dir := range []string{"home/.ssh", "swapped", "another", "run/podman", "fly", "odd", "team", "engine/.codex", "planted"} {
		if err := os.MkdirAll(o.at(dir), 0o700); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"home/.ssh/id": o.Marker, "swapped/which": "checked " + o.Marker, "another/which": "another " + o.Marker,
		"fly/api": o.Marker, "odd/plain": o.Marker, "work/stay.lock": "",
	} {
		if err := os.WriteFile(o.at(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	err := errors.Join(
		unix.Mkfifo(o.StayPipe, 0o600), unix.Mkfifo(o.at("odd/fifo"), 0o600),
		os.Symlink(o.at("odd/plain"), o.at("odd/link")), os.Symlink(o.at("another"), o.at("planted/.codex")),
		o.plantTraps(), o.plantSetuid(),
	)
	if err != nil {
		return err
	}
	pipe, err := os.OpenFile(o.StayPipe, os.O_RDWR, 0) // who reads it ends with us
	if err != nil {
		return err
	}
	o.later(pipe.Close)
	return o.findSources()
}

// traps are what a bot could leave in its folders for somebody outside to run
// or to read: each runs the script that leaves a mark.
var traps = []struct{ path, text string }{
	{".git/HEAD", "ref: refs/heads/main\n"},
	{".git/config", "[core]\n\tfsmonitor = TRAP\n\thooksPath = HOOKS\n[alias]\n\tstatus = !TRAP\n[filter \"x\"]\n\tclean = TRAP\n\tsmudge = TRAP\n[diff]\n\texternal = TRAP\n"},
	{".git/info/attributes", "* filter=x\n"},
	{".git/hooks/post-checkout", script}, {".git/hooks/pre-commit", script}, {".git/hooks/fsmonitor-watchman", script},
	{".gitattributes", "* filter=x\n"},
	{".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = x\n\tupdate = !TRAP\n"},
	{".envrc", script}, {".bashrc", script}, {".profile", script}, {".npmrc", "node-options=--require=TRAP\n"},
	{"git", script}, {"sh", script}, {"bwrap", script}, {"nsenter", script}, {"boxentry", script}, {"boxprobe", script}, {"node", script},
	{"node_modules/.bin/git", script}, {".venv/bin/python", script},
	{".vscode/tasks.json", `{"tasks":[{"command":"TRAP","runOptions":{"runOn":"folderOpen"}}]}`},
	{".claude/settings.json", `{"hooks":{"SessionStart":[{"hooks":[{"type":"command","command":"TRAP"}]}]}}`},
	{".mcp.json", `{"mcpServers":{"x":{"command":"TRAP"}}}`},
	{"package.json", `{"scripts":{"preinstall":"TRAP","prepare":"TRAP"}}`}, {"Makefile", "all:\n\tTRAP\n$(shell TRAP)\n"},
}

const script = "#!/bin/sh\n: >'FIRED'\n"

// trap is the script that the other traps name, and fired is what it leaves.
func (o *outside) trap() string  { return o.at("work/.git/hooks/pre-commit") }
func (o *outside) fired() string { return o.at("fired") }

func (o *outside) plantTraps() error {
	names := strings.NewReplacer("TRAP", o.trap(), "FIRED", o.fired(), "HOOKS", filepath.Dir(o.trap()))
	for _, dir := range []string{o.WorkDir, o.BotDir} {
		for _, t := range traps {
			path := filepath.Join(dir, t.path)
			err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(names.Replace(t.text)), 0o700))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// plantSetuid lays a program with a setuid bit where a PATH would find it as
// bubblewrap.
func (o *outside) plantSetuid() error {
	path := o.at("setuid/bwrap")
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700), os.Chmod(path, 0o700|os.ModeSetuid))
}

// exchange is what another program of this user could do between the look at a
// folder and the start of the box.
func (o *outside) exchange() error {
	return errors.Join(os.Rename(o.Swapped, o.Swapped+"-aside"), os.Symlink(o.at("another"), o.Swapped))
}

// findSources notes which folder of which file system a box would show, if it
// showed one of ours.
func (o *outside) findSources() error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	o.WorkSource = sourceOf(string(text), o.WorkDir)
	o.Closed = []string{sourceOf(string(text), o.DataDir), sourceOf(string(text), o.at("home"))}
	for _, s := range append(o.Closed, o.WorkSource) {
		if s == "" {
			return errors.New("the file system of our own folder is not in the list of mounts")
		}
	}
	return nil
}

// sourceOf finds a folder in a mountinfo: the file system, and the path in it.
// Of two mounts at one place the later one is seen.
func sourceOf(mountinfo, path string) (source string) {
	best := -1
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		rel, err := filepath.Rel(f[4], path)
		if err != nil || !filepath.IsLocal(rel) || len(f[4]) < best {
			continue
		}
		best, source = len(f[4]), fmt.Sprintf("%s %s", f[2], filepath.Join(f[3], rel))
	}
	return source
}
