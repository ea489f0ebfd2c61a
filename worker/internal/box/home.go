package box

import (
	"path/filepath"
	"slices"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// homeSize bounds a private HOME: caches of npx and uvx go there.
const homeSize = 2048 * mib

// loginFolders hold each engine's own sign-in, below HOME. The engine needs
// it; SECURITY.md names it as what a box can read. They are folders, since an
// engine renews its sign-in by rename, which fails onto a file that is a mount
// point.
var loginFolders = map[string][]string{
	"claude":      {".claude"},
	"codex":       {".codex"},
	"gemini":      {".gemini"},
	"antigravity": {".gemini"},
	"grok":        {".grok"},
	"opencode":    {".config/opencode", ".local/share/opencode"},
}

func (p *Plan) addHome(s spec.Spec, m Machine) {
	switch s.Home.Mode {
	case "server":
		p.addAsked(Bind, m.Home, KnownSocket, "HOME of a Cloud home: the engines' own logins and settings")
	case "engine":
		p.addEngineHome(s.Home)
	default:
		p.addTmpfs(m.Home, homeSize, "an empty private HOME")
		if s.Profile.Keys == "none" {
			return // a sign-in is a key too
		}
		if len(s.Broker.Logins) > 0 {
			return // the broker has it, outside
		}
		for _, dir := range loginFolders[s.Engine] {
			if slices.Contains(m.Logins, dir) {
				dest := filepath.Join(m.Home, dir)
				p.addAsked(Bind, dest, KnownSocket, "the named engine's own sign-in")
			}
		}
	}
}

// Alone tells whether nothing of the machine stands where the engine keeps its
// sign-in and its settings.
func (p *Plan) Alone(engine string) bool {
	return !slices.ContainsFunc(loginFolders[engine], func(dir string) bool { return !p.own(filepath.Join(p.Home, dir, "any")) })
}

// own tells whether a path lies in an empty private folder of the box.
func (p *Plan) own(path string) bool {
	above := p.above(path)
	return above != nil && above.Kind == Tmpfs
}

// AddFile writes a file below a HOME that is the box's own. Where the folder
// is one of the machine's nothing is written: it is the user's, and boxes can
// write there.
func (p *Plan) AddFile(name, content string) {
	path := filepath.Join(p.Home, name)
	if p.own(path) {
		p.addContent(path, content)
	}
}

func (p *Plan) addContent(path, content string) {
	if p.Files == nil {
		p.Files = map[string]string{}
	}
	p.Files[path] = content
}

// addEngineHome lets an audience's HOME in at its own path, so that the
// server's is nowhere in the box, and the team's sign-in folders over folders
// of it: what an engine renews there by rename, it renews for the team.
func (p *Plan) addEngineHome(home spec.Home) {
	p.Home = home.Path
	p.addAsked(Bind, home.Path, KnownSocket, "the audience's engine home")
	for _, folder := range home.Signin {
		p.Mounts = append(p.Mounts, Mount{Kind: Bind, Source: folder.From, Dest: filepath.Join(home.Path, folder.As),
			Nested: true, Sockets: KnownSocket, Reason: "the team's sign-in"})
	}
}

// hide puts empty folders over what no box sees. What does not exist below a
// folder of the machine cannot be hidden: a mount point for the mask would be
// left in the user's tree, and without one it would be in the box as soon as
// somebody makes it.
func (p *Plan) hide(m Machine) error {
	if !m.DataExists && p.shows(m.DataDir) {
		return reason.New(reason.PathRefused, "the data folder %s does not exist, so it cannot be hidden in a box that sees where it would be", m.DataDir).
			WithHint("make it first: mkdir -m 700 %s, or name another in OMB_DATA_DIR", m.DataDir)
	}
	for _, own := range m.Own {
		if within(own.Path, m.DataDir) || !p.shows(own.Path) {
			continue
		}
		if !own.Exists {
			return reason.New(reason.PathRefused, "the worker's folder %s does not exist, so it cannot be hidden in a box that sees where it would be", own.Path).
				WithHint("make it first: mkdir -p -m 700 %s", own.Path)
		}
		p.addTmpfs(own.Path, mib, "the worker's sockets, database and secrets stay out")
	}
	p.addTmpfs(m.DataDir, 64*mib, "the data folder is an empty private folder")
	return nil
}

// shows tells whether a folder of the machine is bound at or above path.
func (p *Plan) shows(path string) bool {
	return slices.ContainsFunc(p.Mounts, func(m Mount) bool {
		return (m.Kind == Bind || m.Kind == ROBind) && within(path, m.Dest)
	})
}
