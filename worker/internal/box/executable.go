package box

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/worker/internal/spec"
)

// Executable is how an engine is reached as exec would reach it on the
// machine: the command itself, then the interpreter of a script.
type Executable []Step

// Step is the way to one program.
type Step struct {
	Links []Link // in the order of the way
	Real  string // the program at its end
	Place string // what it is installed with, or the program alone
}

// Link is one symbolic link.
type Link struct{ At, To string }

// installs are the folders that a program does not run without, by a part of
// its path: what is let in ends so many names after it. What fits none comes
// alone.
var installs = []struct {
	part   string
	names  int
	reason string
}{
	{"/.nvm/versions/node/", 1, "a Node of nvm's with its global packages"},
	{"/.volta/tools/image/", 2, "a tool of Volta's"},
	{"/fnm/node-versions/", 1, "a Node of fnm's with its global packages"},
	{"/mise/installs/", 2, "a tool of mise's"},
	{"/.asdf/installs/", 2, "a tool of asdf's"},
	{"/.pyenv/versions/", 1, "a Python of pyenv's"},
	{"/pipx/venvs/", 1, "a tool of pipx's"},
	{"/uv/tools/", 1, "a tool of uv's"},
	{"/uv/python/", 1, "a Python of uv's"},
	{"/ms-playwright/", 1, "a browser of Playwright's"},
	{"/puppeteer/chrome/", 1, "a browser of Puppeteer's"},
	{"/node_modules/", 0, "a package of npm's, with those that it needs"},
}

// maxLinks is the kernel's own bound on the links of one path.
const maxLinks = 40

// lookAtExecutable finds the command's first word in PATH, and what a script
// names as its interpreter.
func lookAtExecutable(argv []string, path string) (x Executable) {
	if len(argv) == 0 {
		return nil
	}
	for name := argv[0]; name != "" && len(x) < 3; {
		real, links := follow(find(name, path))
		if real == "" {
			return x
		}
		x = append(x, Step{links, real, install(real)})
		name = interpreter(real)
	}
	return x
}

// Leads gives the file that a command's first word ends at, through PATH and
// symbolic links, or nothing.
func Leads(name, path string) string {
	real, _ := follow(find(name, path))
	return real
}

// find gives the absolute path that exec would run, or nothing.
func find(name, path string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, dir := range filepath.SplitList(path) {
		candidate := filepath.Join(dir, name)
		if st, err := os.Stat(candidate); err == nil && filepath.IsAbs(dir) && st.Mode().IsRegular() && unix.Access(candidate, unix.X_OK) == nil {
			return candidate
		}
	}
	return ""
}

// follow walks a path as the kernel does, and gives the program at its end: a
// plain file that this user can run.
func follow(path string) (real string, links []Link) {
	if !filepath.IsAbs(path) {
		return "", nil
	}
	real = "/"
	left := strings.Split(path, "/")
	for len(left) > 0 {
		name := left[0]
		left = left[1:]
		if name == "" || name == "." {
			continue
		}
		next := filepath.Join(real, name)
		to, err := os.Readlink(next)
		if err != nil { // no link, or nothing at all, which is seen at the end
			real = next
			continue
		}
		if links = append(links, Link{next, to}); len(links) > maxLinks {
			return "", nil
		}
		if filepath.IsAbs(to) {
			real = "/"
		}
		left = append(strings.Split(to, "/"), left...)
	}
	if st, err := os.Lstat(real); err != nil || !st.Mode().IsRegular() || unix.Access(real, unix.X_OK) != nil {
		return "", nil
	}
	return real, links
}

// install gives the folder that a program is installed in, or the program.
func install(real string) string {
	for _, row := range installs {
		at := strings.Index(real, row.part)
		if at < 0 {
			continue
		}
		end := at + len(row.part) - 1
		for range row.names {
			next := strings.IndexByte(real[end+1:], '/')
			if next < 0 {
				return real
			}
			end += 1 + next
		}
		return real[:end]
	}
	return real
}

// interpreter gives the program that a script names in its first line.
func interpreter(script string) string {
	fd, err := openat2(script, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	b := make([]byte, 256) // as much as the kernel reads
	n, err := unix.Read(fd, b)
	if err != nil {
		return ""
	}
	return shebang(b[:n])
}

// shebang reads "#!PROGRAM …", or the name that "#!…/env NAME" looks up.
func shebang(b []byte) string {
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	rest, ok := bytes.CutPrefix(line, []byte("#!"))
	words := strings.Fields(string(rest))
	switch {
	case !ok || len(words) == 0:
		return ""
	case filepath.Base(words[0]) != "env":
		return words[0]
	}
	for _, word := range words[1:] {
		if !strings.HasPrefix(word, "-") && !strings.Contains(word, "=") {
			return word
		}
	}
	return ""
}

// addExecutable lets the engine in where HOME hides it: the links one by one,
// and what is at their end, read-only. HOME itself never comes with them. The
// way ends at a folder that the spec names: a box may have written there where
// it goes on to.
func (p *Plan) addExecutable(s spec.Spec, m Machine) {
	var in []string
	defer func() {
		if len(in) > 0 {
			p.Warnings = append(p.Warnings, "the command is installed outside the system's folders; let in read-only: "+strings.Join(in, ", "))
		}
	}()
	for _, step := range m.Executable {
		for _, link := range step.Links {
			if p.named(link.At) {
				return
			}
			if p.visible(link.At) == nil && !m.isLink(link.At) && !within(m.Home, link.At) {
				p.add(Symlink, link.To, link.At, "on the way to the command")
			}
		}
		if p.named(step.Real) {
			return
		}
		if p.visible(step.Place) != nil || m.isLink(step.Place) {
			continue
		}
		why := refuse(putBack{step.Place, "argv", false}, s.Home.Mode, m)
		if within(m.Home, step.Place) {
			why = "it is the home folder, or holds it"
		}
		if why != "" {
			p.Warnings = append(p.Warnings, step.Place+", where the command is installed, is not in the box: "+why)
			return
		}
		p.addAsked(ROBind, step.Place, AnySocket, "the command is installed here")
		in = append(in, step.Place)
	}
}

// visible gives the folder of the machine through which a path of it is in the
// box so far, nil if it is not.
func (p *Plan) visible(path string) *Mount {
	var nearest *Mount
	for i := range p.Mounts {
		if m := &p.Mounts[i]; within(path, m.Dest) && (nearest == nil || len(m.Dest) >= len(nearest.Dest)) {
			nearest = m
		}
	}
	if nearest == nil || (nearest.Kind != Bind && nearest.Kind != ROBind) {
		return nil
	}
	return nearest
}

// named tells whether a path is in the box because the spec named it.
func (p *Plan) named(path string) bool {
	m := p.visible(path)
	return m != nil && m.Sockets != 0
}

// isLink tells whether a path starts at one of the links of a merged /usr.
func (m Machine) isLink(path string) bool {
	top, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	_, ok := m.RootLinks[top]
	return ok
}
