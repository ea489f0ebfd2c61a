package box

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/openmausbot/botbox/shared/seccomp"
)

// Handles are the numbers, in bubblewrap's process, of the files that a box is
// built from.
type Handles struct {
	Mounts  map[string]int // destination of a Bind or ROBind → its source
	Files   map[string]int // path of one of the plan's files → its content
	Data    []int          // the content of each of the plan's data
	Seccomp int            // the filter
	Status  int            // where bubblewrap writes its JSON
	Socket  int            // boxentry's end of the entry socket
	Options int            // the memfd that holds Options' words
	User    int            // the namespace of the plan's user
}

// HostName is every box's: the machine's own, or a container's, is nobody's
// business in there.
const HostName = "botbox"

// NamelessWarning stands in the answer and in the report where that cannot be.
const NamelessWarning = "boxes have this machine's host name: a filter around us refuses another (a container's --cap-add SYS_ADMIN allows it)"

// Options are bubblewrap's options for a plan, in an order that is part of the
// box: they ride in a memfd, so that no path and no value of the environment
// stands in a command line that all users of the machine can read.
func Options(p *Plan, h Handles) []string {
	args := []string{"--die-with-parent"}
	if p.Lacks.Parent {
		args = nil
	}
	for _, ns := range p.Namespaces {
		args = append(args, ns.Flag)
	}
	if p.unshares("user") && p.Seccomp == seccomp.Engine {
		args = append(args, "--disable-userns")
	}
	if p.unshares("uts") && !p.Nameless {
		args = append(args, "--hostname", HostName)
	}
	if !p.TTY {
		args = append(args, "--new-session")
	}
	args = append(args, p.mountWords(h, false)...)
	for _, path := range slices.Sorted(maps.Keys(p.Files)) {
		args = append(args, "--perms", "0600", "--file", strconv.Itoa(h.Files[path]), path)
	}
	for i, d := range p.Data {
		args = append(args, "--perms", "0444", "--ro-bind-data", strconv.Itoa(h.Data[i]), d.Dest)
	}
	args = append(args, p.mountWords(h, true)...)
	args = append(args, "--chdir", p.Cwd, "--clearenv")
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		args = append(args, "--setenv", name, p.Env[name])
	}
	args = append(args, p.Lacks.options()...)
	if p.filtered() {
		args = append(args, "--seccomp", strconv.Itoa(h.Seccomp))
	}
	return append(args, "--json-status-fd", strconv.Itoa(h.Status))
}

// filtered: always, but in the self-check's own box.
func (p *Plan) filtered() bool { return p.Lacks.Weakened == nil || len(p.Lacks.Weakened) > 0 }

func (p *Plan) unshares(name string) bool {
	return slices.ContainsFunc(p.Namespaces, func(n Namespace) bool { return n.Name == name })
}

// mountWords are those of every mount, or of what becomes read-only when all
// that belongs in there is made.
func (p *Plan) mountWords(h Handles, closing bool) (words []string) {
	for _, m := range p.Mounts {
		if (m.Kind == ROAgain) == closing {
			words = append(words, mountOptions(m, h)...)
		}
	}
	return words
}

func mountOptions(m Mount, h Handles) []string {
	switch m.Kind {
	case Bind:
		if m.Careless.ByPath {
			return []string{"--bind", m.Source, m.Dest}
		}
		return []string{"--bind-fd", strconv.Itoa(h.Mounts[m.Dest]), m.Dest}
	case ROBind:
		if m.Program != nil {
			return m.Program.options(h.Mounts[m.Dest], m.Dest)
		}
		if m.Careless.ByPath {
			return []string{"--ro-bind", m.Source, m.Dest}
		}
		return []string{"--ro-bind-fd", strconv.Itoa(h.Mounts[m.Dest]), m.Dest}
	case Tmpfs:
		words := []string{"--perms", tmpfsPerms(m.Dest)}
		if m.Size > 0 { // always, but in the self-check's own box
			words = append(words, "--size", strconv.FormatInt(m.Size, 10))
		}
		return append(words, "--tmpfs", m.Dest)
	case Proc:
		return []string{"--proc", m.Dest}
	case Dev:
		return []string{"--dev", m.Dest}
	case Symlink:
		return []string{"--symlink", m.Source, m.Dest}
	default:
		return []string{"--remount-ro", m.Dest}
	}
}

// options let the program in: as it is, or as the copy that fd then holds.
func (p *Program) options(fd int, dest string) []string {
	if p.Copy != nil {
		return []string{"--perms", "0555", "--ro-bind-data", strconv.Itoa(fd), dest}
	}
	return []string{"--ro-bind-fd", strconv.Itoa(fd), dest}
}

// open gives the file that options names, for one process that closes it.
func (p *Program) open() (*os.File, error) {
	if p.Copy != nil {
		return Sealed(p.Name(), p.Copy)
	}
	return again(p.File)
}

// tmpfsPerms are those that programs look for: some refuse a /tmp without the
// sticky bit, and a HOME that others can read.
func tmpfsPerms(dest string) string {
	switch dest {
	case "/tmp", "/var/tmp", "/dev/shm":
		return "1777"
	case "/run":
		return "0755"
	}
	return "0700"
}

// Command is the whole command line: bubblewrap, then boxentry with what it
// has to do, then the engine's own words untouched.
func Command(p *Plan, bwrap string, h Handles) []string {
	ports := make([]string, len(p.Listen))
	for i, port := range p.Listen {
		ports[i] = strconv.Itoa(port)
	}
	words := []string{}
	if p.User != nil {
		words = p.User.enter(h.User)
	}
	words = append(words, bwrap)
	if p.Lacks.Memfd {
		words = append(words, Options(p, h)...)
	} else {
		words = append(words, "--args", strconv.Itoa(h.Options))
	}
	words = append(words, "--", EntryPath,
		"socket="+strconv.Itoa(h.Socket),
		"listen="+strings.Join(ports, ","),
		"nproc="+strconv.Itoa(p.Pids),
		"nofile="+strconv.Itoa(p.Nofile),
		"tty="+strconv.FormatBool(p.TTY),
	)
	if p.FileMB > 0 {
		words = append(words, "fsize="+strconv.Itoa(p.FileMB))
	}
	if p.Lacks.KeepScore {
		words = append(words, "score=true")
	}
	if p.Pipe {
		words = append(words, "pipe=true")
	}
	if p.Lacks.CoreLimit {
		words = append(words, "core=true")
	}
	return append(append(words, "--"), p.Argv...)
}
