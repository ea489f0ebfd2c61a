package box

import (
	"path/filepath"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// refusedPaths may not be put back, and nothing above them may be: below the
// first group is the machine, below the second are its sockets and kernel
// files.
var refusedPaths = []struct {
	path   string
	below  bool // whether everything below it is refused too
	reason string
}{
	{"/usr", false, "it is in every box already, read-only"},
	{"/etc", true, "the machine's settings are in every box already, read-only"},
	{"/opt", false, "it is in every box already, read-only"},
	{"/var", false, "the machine's state"},
	{"/home", false, "every user's files"},
	{"/root", false, "root's files"},
	{"/tmp", false, "other turns' files"},
	{"/var/tmp", false, "other turns' files"},
	{"/run", true, "the machine's sockets: container runtimes, D-Bus, agents"},
	{"/var/run", true, "the machine's sockets: container runtimes, D-Bus, agents"},
	{"/proc", true, "the machine's processes"},
	{"/sys", true, "the machine's kernel"},
	{"/dev", true, "the machine's devices"},
	{"/var/lib", false, "the machine's state"},
	{"/var/lib/docker", true, "every container's files"},
	{"/var/lib/containerd", true, "every container's files"},
	{"/var/lib/containers", true, "every container's files"},
	{"/var/lib/libvirt", true, "every machine's disk"},
	{"/tmp/.X11-unix", true, "an X server gives every client the others' keyboard"},
	{"/boot", true, "the machine's kernel"},
	{"/.fly", true, "Fly's local API"},
}

// putBack is one path that a spec asks for.
type putBack struct {
	path     string
	field    string
	writable bool
}

func putBacks(s spec.Spec) []putBack {
	var all []putBack
	if s.Cwd != "" {
		all = append(all, putBack{s.Cwd, "cwd", s.Profile.Work != "ro"})
	}
	for _, p := range s.Paths.RW {
		all = append(all, putBack{p, "paths.rw", true})
	}
	for _, p := range s.Paths.RO {
		all = append(all, putBack{p, "paths.ro", false})
	}
	for _, p := range s.Paths.ArgvFiles {
		all = append(all, putBack{p, "paths.argv_files", false})
	}
	if s.Paths.PermSocketDir != "" {
		all = append(all, putBack{s.Paths.PermSocketDir, "paths.perm_socket_dir", true})
	}
	if s.Browser.Profile != nil {
		all = append(all, putBack{*s.Browser.Profile, "browser.profile", true})
	}
	if s.Home.Path != "" {
		all = append(all, putBack{s.Home.Path, "home.path", true})
	}
	for _, folder := range s.Home.Signin {
		all = append(all, putBack{folder.From, "home.signin", true})
	}
	return all
}

// checkPaths refuses by name what must not enter a box. A link that leads
// there is refused when the path is opened.
func checkPaths(s spec.Spec, m Machine) error {
	for _, p := range putBacks(s) {
		if why := refuse(p, s.Home.Mode, m); why != "" {
			return reason.New(reason.PathRefused, "%s may not enter the box (%s): %s", p.path, p.field, why)
		}
	}
	return nil
}

// MayGive tells whether a folder may become a bot's own: one that a spec may
// put back as a writable folder, and none above the machine's or the worker's.
func (m Machine) MayGive(folder string) error {
	if !filepath.IsAbs(folder) || filepath.Clean(folder) != folder {
		return reason.New(reason.PathRefused, "%s is no absolute path in its shortest spelling", folder)
	}
	if within(m.Home, folder) {
		return reason.New(reason.PathRefused, "%s is the account's home folder, or holds it", folder)
	}
	if why := refuse(putBack{folder, "paths.rw", true}, "private", m); why != "" {
		return reason.New(reason.PathRefused, "%s may not become a bot's: %s", folder, why)
	}
	return nil
}

func refuse(p putBack, home string, m Machine) string {
	if p.field == "cwd" && isPrivateWork(p.path) {
		return ""
	}
	if p.path == "/" {
		return "it is the whole machine"
	}
	for _, row := range refusedPaths {
		if p.path == row.path || (row.below && within(p.path, row.path)) {
			return row.reason
		}
	}
	if p.path == m.Home && p.field == "cwd" && home != "server" {
		return "it is the home folder, which --home " + home + " keeps out; work in a folder of its own, or use --home server"
	}
	if (p.field == "home.path" || p.field == "home.signin") && within(m.Home, p.path) {
		return "it is the server's home folder, or holds it"
	}
	for _, own := range m.Own {
		switch {
		case within(p.path, own.Path):
			return "it is the worker's own: its sockets, database and secrets"
		case within(own.Path, p.path) && p.field != "cwd": // hidden by a mask, see hide
			return "it holds the worker's own folder " + own.Path
		}
	}
	return refuseData(p, m)
}

// inDataFolder are the only places below the data folder that can be put back.
var inDataFolder = []struct {
	name     string
	writable bool
	reason   string
}{
	{"workspaces", true, "bots' own folders"},
	{"hook-tokens", false, "a conversation's hook tokens"},
	{"perm", true, "a process's permission socket"},
	{"attachments", false, "uploads"},
	{"browser-profiles", true, "one bot's browser profile"},
}

func refuseData(p putBack, m Machine) string {
	switch {
	case m.DataDir == "":
		return ""
	case p.path == m.DataDir:
		return "it is the data folder"
	case within(m.DataDir, p.path):
		if p.field == "cwd" { // hidden by the mask, see hide
			return ""
		}
		return "it holds the data folder"
	case !within(p.path, m.DataDir):
		return ""
	}
	rel, _ := filepath.Rel(m.DataDir, p.path)
	top, rest, _ := strings.Cut(rel, "/")
	for _, row := range inDataFolder {
		if top == row.name && rest != "" && (row.writable || !p.writable) {
			return ""
		}
	}
	return "of the data folder only one bot's workspace, one conversation's hook tokens, a permission folder, uploads and one browser profile can be put back"
}
