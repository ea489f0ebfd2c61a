package box

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// Repo is what git keeps for one folder that enters a box. No git is run to
// find out: it would execute what a box may have written.
type Repo struct {
	Guard   []string // what a git outside would execute from: read-only
	Common  string   // of a work tree: the repository's folder, elsewhere
	Write   []string // of a work tree: what a commit writes
	Read    []string // of a work tree: what git reads
	Warning string   // why something of it is missing or not protected
}

// guarded are read-only in a box, where they are there: nothing is planted to
// keep a file from being made.
var guarded = []struct{ name, reason string }{
	{"hooks", "git executes them"},
	{"config", "core.hooksPath, core.fsmonitor, filters and aliases name programs"},
	{"config.worktree", "the same, for one work tree"},
	{"info", "its attributes choose which filter is executed"},
	{"commondir", "it says where hooks and config are"},
}

// shared are what a work tree needs of the repository that it belongs to. The
// repository's folder itself stays out, so nothing can be made in it.
var shared = []struct {
	name   string
	write  bool
	reason string
}{
	{"objects", true, "a commit adds to them"},
	{"refs", true, "a commit moves its branch"},
	{"logs", true, "a commit is written down in its branch's"},
	{"lfs", true, "large files are kept here"},
	{"rr-cache", true, "resolved conflicts are kept here"},
	{"HEAD", false, "git looks for it"},
	{"packed-refs", false, "branches that are packed"},
	{"shallow", false, "where history ends"},
	{"hooks", false, "git executes them"},
	{"config", false, "core.hooksPath, core.fsmonitor, filters and aliases name programs"},
	{"info", false, "its attributes choose which filter is executed"},
}

// lookAtRepo finds the repository whose top a folder is.
func lookAtRepo(folder string) []Repo {
	git := filepath.Join(folder, ".git")
	switch kind, err := kindAt(git); {
	case err == unix.ENOENT || err == unix.ENOTDIR:
		return nil
	case err != nil:
		return []Repo{{Warning: git + " is behind a symbolic link: git may not work in the box, and its hooks and config are not protected"}}
	case kind == unix.S_IFDIR:
		return []Repo{guard(git)}
	case kind != unix.S_IFREG:
		return nil
	}
	r, err := workTree(git)
	if err != nil {
		return []Repo{{Warning: git + ": git will not work in the box: " + err.Error()}}
	}
	return []Repo{r}
}

// guard lists what is protected of a git folder.
func guard(git string) (r Repo) {
	for _, row := range guarded {
		path := filepath.Join(git, row.name)
		switch kind, err := kindAt(path); {
		case err == unix.ENOENT:
		case err != nil || (kind != unix.S_IFDIR && kind != unix.S_IFREG):
			r.Warning = path + " is a link or a special file and is not protected: " + row.reason
		default:
			r.Guard = append(r.Guard, path)
		}
	}
	return r
}

// workTree follows the file .git of a linked work tree. A box may have written
// it, so the repository has to name this folder in return: the way back is in a
// place that only this folder's own boxes can write, and the repository is
// found by where that place is, not by what is written in it.
func workTree(git string) (Repo, error) {
	text, err := readLine(git)
	if err != nil {
		return Repo{}, err
	}
	dir, ok := strings.CutPrefix(text, "gitdir: ")
	if !ok {
		return Repo{}, reason.New(reason.PathRefused, "it names no gitdir")
	}
	dir = join(filepath.Dir(git), dir)
	back, err := readLine(filepath.Join(dir, "gitdir"))
	if err != nil {
		return Repo{}, err
	}
	if join(dir, back) != git {
		return Repo{}, reason.New(reason.PathRefused, "%s does not name this folder in return", dir)
	}
	common := filepath.Dir(filepath.Dir(dir))
	to, err := readLine(filepath.Join(dir, "commondir"))
	if err != nil {
		return Repo{}, err
	}
	if filepath.Base(filepath.Dir(dir)) != "worktrees" || join(dir, to) != common {
		return Repo{}, reason.New(reason.PathRefused, "%s is not below its repository's worktrees", dir)
	}
	r := guard(dir)
	r.Guard = append(r.Guard, git, filepath.Join(dir, "gitdir"))
	r.Common, r.Write = common, []string{dir}
	for _, row := range shared {
		path := filepath.Join(common, row.name)
		kind, err := kindAt(path)
		if err != nil || (kind != unix.S_IFDIR && kind != unix.S_IFREG) {
			continue
		}
		if row.write {
			r.Write = append(r.Write, path)
		} else {
			r.Read = append(r.Read, path)
		}
	}
	return r, nil
}

func join(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// kindAt looks at a path without a symbolic link anywhere on the way.
func kindAt(path string) (uint32, error) {
	var f footing
	return f.look(unix.AT_FDCWD, path)
}

// readLine reads a small text file that a box may have made: never a link, a
// FIFO or a device, and never more than a path can be long.
func readLine(path string) (string, error) {
	fd, err := openat2(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return "", reason.New(reason.PathRefused, "open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "", reason.New(reason.PathRefused, "%s is no plain file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, unix.PathMax+16))
	if err != nil {
		return "", reason.New(reason.PathRefused, "read %s: %w", path, err)
	}
	line := strings.TrimRight(string(b), "\n")
	if line == "" || strings.ContainsAny(line, "\n\x00") || len(line) > unix.PathMax {
		return "", reason.New(reason.PathRefused, "%s does not hold one path", path)
	}
	return line, nil
}

// addRepos lets in what a work tree needs of its repository, and takes away
// from the box what a git outside would execute. What is wrong with a
// repository is a warning: a bot that breaks its own must not end its turns.
func (p *Plan) addRepos(s spec.Spec, m Machine) {
	for _, r := range m.Repos {
		if r.Warning != "" {
			p.Warnings = append(p.Warnings, r.Warning)
		}
		if r.Common != "" {
			if why := refuseRepo(r, s, m); why != "" {
				p.Warnings = append(p.Warnings, r.Common+": git will not work in the box: "+why)
				continue
			}
			p.addCommon(s, r)
		}
		for _, path := range r.Guard {
			p.Mounts = append(p.Mounts, Mount{Kind: ROBind, Source: path, Dest: path, Nested: true,
				Reason: "a later git outside would execute what it says"})
		}
	}
}

func refuseRepo(r Repo, s spec.Spec, m Machine) string {
	if within(m.Home, r.Common) {
		return "it is the home folder, or holds it"
	}
	return refuse(putBack{r.Common, "work tree", true}, s.Home.Mode, m)
}

func (p *Plan) addCommon(s spec.Spec, r Repo) {
	kind := Bind
	if s.Profile.Work == "ro" {
		kind = ROBind
	}
	for _, path := range r.Write {
		p.Mounts = append(p.Mounts, Mount{Kind: kind, Source: path, Dest: path, Nested: kind == ROBind, Sockets: KnownSocket,
			Reason: "what a commit in the work tree writes"})
	}
	for _, path := range r.Read {
		p.Mounts = append(p.Mounts, Mount{Kind: ROBind, Source: path, Dest: path, Nested: true,
			Reason: "what git reads of the work tree's repository"})
	}
}
