package box

import (
	goflag "flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

var update = goflag.Bool("update", false, "rewrite the golden files")

// debian is a machine with a merged /usr and a Cloud home's folders.
func debian() Machine {
	return Machine{
		Home: "/data", User: "maus", DataDir: "/data/.openmausbot", DataExists: true,
		RootDirs:  []string{"usr", "etc", "opt"},
		RootLinks: map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"},
		CPUFiles:  cpuFiles, Logins: []string{".claude", ".codex"}, SSHFolders: sshFolders[:1],
	}
}

var ports = Ports{Egress: 3128, Broker: 18080, Harness: 8799}

func claude(home string) spec.Spec {
	s := spec.Spec{Engine: "claude", Argv: []string{"claude", "-p", "hi"}, Cwd: "/srv/project"}
	s.Home.Mode, s.Net.Mode = home, "gated"
	return s
}

// The golden files are what a box is, to be read by a person.
func TestOptionsGolden(t *testing.T) {
	cloud := claude("server")
	cloud.Cwd = "/data/.openmausbot/workspaces/b-12"
	cloud.Paths.RO = []string{"/data/.openmausbot/hook-tokens/t-99"}
	cloud.Paths.ArgvFiles = []string{"/tmp/omb-mcp-x/mcp.json"}
	cloud.Paths.PermSocketDir = "/data/.openmausbot/perm/t-99"
	engine := claude("engine")
	engine.Home.Path = "/data/engine-homes/team"
	engine.Home.Signin = []spec.Signin{{From: "/srv/team/codex", As: ".codex", Mode: "rw-dir"}}
	project := claude("server")
	project.Cwd = "/data/project"
	none := claude("private")
	none.Net.Mode, none.TTY, none.Cwd = "none", true, ""
	for name, s := range map[string]spec.Spec{"private": claude("private"), "server": cloud, "engine": engine, "no-network": none, "repository": project, "declared": claude("private")} {
		m := debian()
		if s.Cwd == project.Cwd {
			m.Repos = []Repo{{Guard: []string{"/data/project/.git/hooks", "/data/project/.git/config"}}}
		}
		p, err := NewPlan(s, m, ports)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p.Env = map[string]string{"HOME": p.Home, "BOTBOX": "1"}
		if name == "declared" {
			p.Data = []Data{{Dest: "/run/botbox/roots.pem", Content: []byte("roots")}}
		}
		compare(t, name, render(p))
	}
}

// render numbers the files as a kit does.
func render(p *Plan) string {
	h := Handles{Mounts: map[string]int{}, Files: map[string]int{}}
	next := ChildFD
	for _, m := range p.Mounts {
		if m.Kind == Bind || m.Kind == ROBind {
			h.Mounts[m.Dest] = next
			next++
		}
	}
	for _, path := range slices.Sorted(maps.Keys(p.Files)) {
		h.Files[path] = next
		next++
	}
	for range p.Data {
		h.Data = append(h.Data, next)
		next++
	}
	h.Seccomp, h.Socket, h.Status, h.Options = next, next+1, next+2, next+3
	var b strings.Builder
	for _, word := range Options(p, h) {
		sep := " "
		if strings.HasPrefix(word, "--") {
			sep = "\n"
		}
		b.WriteString(sep + word)
	}
	fmt.Fprintf(&b, "\n\n%s\n", strings.Join(Command(p, "/usr/bin/bwrap", h), " "))
	return strings.TrimPrefix(b.String(), "\n")
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it); got\n%s", path, got)
	}
}

// pool are paths that a driver may name; some are refused.
var pool = []string{
	"/srv/a", "/srv/a/b", "/srv/a/b/c", "/srv", "/data/p", "/data/p/q", "/data/x/y/z", "/tmp/w", "/tmp/w/v", "/tmp/.X11-unix",
	"/usr/local/src/p", "/opt/tool", "/data/.openmausbot", "/data/.openmausbot/workspaces/b1", "/data/.openmausbot/workspaces/b1/sub",
	"/data/.openmausbot/hook-tokens/t1", "/data/.openmausbot/config.json", "/home/u/project", "/mnt/disk", "/mnt", "/", "/data", "/run/user/1000/bus",
	"/var/run/docker.sock", "/var/lib", "/var/lib/docker", "/data/state", "/data/state/x/botbox", "/data/homes/team", "/data/.codex", "/srv/repo", "/srv/tree",
}

// randomAsk is a spec of the pool, and a machine that it finds.
func randomAsk(r *rand.Rand) (spec.Spec, Machine) {
	any := func() string { return pool[r.IntN(len(pool))] }
	m := debian()
	m.Own = []Folder{{"/data/state/x/botbox", r.IntN(9) > 0}, {"/run/botbox", true}}
	m.DataExists = r.IntN(9) > 0
	if r.IntN(4) == 0 {
		m.DataDir = "/srv/a/b/data"
	}
	s := claude([]string{"private", "server", "engine"}[r.IntN(3)])
	s.Cwd = any()
	s.Profile.Work = []string{"ro", "rw"}[r.IntN(2)]
	if s.Home.Mode == "engine" {
		s.Home.Path = []string{"/data/homes/team", any()}[r.IntN(2)]
		s.Home.Signin = []spec.Signin{{From: any(), As: ".codex"}, {From: any(), As: ".config/opencode"}}[:r.IntN(3)]
	}
	for range r.IntN(3) {
		s.Paths.RW = append(s.Paths.RW, any())
		s.Paths.RO = append(s.Paths.RO, any())
	}
	if r.IntN(4) == 0 {
		s.Paths.ArgvFiles, s.Paths.PermSocketDir = []string{any()}, any()
	}
	git, common := any()+"/.git", any()
	m.Repos = []Repo{
		{Guard: []string{git + "/hooks", git + "/config"}},
		{Common: "/srv/repo/.git", Write: []string{"/srv/repo/.git/worktrees/t", "/srv/repo/.git/objects"}, Read: []string{"/srv/repo/.git/config"}},
		{Common: common, Write: []string{common + "/objects"}, Read: []string{common + "/HEAD"}},
	}[:r.IntN(4)]
	m.Executable = Executable{
		{[]Link{{"/data/.local/bin/claude", "../share/claude"}}, "/data/.local/share/claude", "/data/.local/share/claude"},
		{nil, any() + "/bin/node", any()},
	}
	return s, m
}

// Whatever a driver asks for is refused, or built so that no mount hides
// another, nothing shows the data folder or the worker's own, and no mount
// stands unguarded where a box can write.
func TestRandomPlans(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	planned, nested, pins := 0, 0, 0
	for range 10000 {
		s, m := randomAsk(r)
		p, err := NewPlan(s, m, ports)
		if err != nil {
			if code := reason.Of(err).Code; code != reason.PathRefused {
				t.Fatalf("%v", err)
			}
			continue
		}
		planned++
		checkOrder(t, p)
		checkHidden(t, p, m)
		for _, mount := range p.Mounts {
			if mount.Nested {
				nested++
			}
			if strings.HasPrefix(mount.Reason, "cannot be moved") {
				pins++
			}
		}
		if t.Failed() {
			t.Fatalf("asked %+v\nplanned %+v", s, p.Mounts)
		}
	}
	if planned < 1000 || nested < 500 || pins < 200 {
		t.Errorf("%d plans, %d nested mounts, %d pins: the test tries too little", planned, nested, pins)
	}
}

// checkHidden looks for a way to what no box sees, as the kernel would.
func checkHidden(t *testing.T, p *Plan, m Machine) {
	t.Helper()
	secret := []string{m.DataDir, m.DataDir + "/config.json", m.DataDir + "/workspaces", "/run/docker.sock", "/var/lib/docker"}
	for _, own := range m.Own {
		secret = append(secret, own.Path)
	}
	for _, path := range secret {
		for _, mount := range p.Mounts {
			if mount.Kind != Bind && mount.Kind != ROBind || mount.Program != nil || !within(path, mount.Source) {
				continue
			}
			inside := mount.Dest + strings.TrimPrefix(path, mount.Source)
			if there := p.nearest(inside); there.Kind == Bind || there.Kind == ROBind {
				t.Errorf("%s is in the box, at %s", path, inside)
			}
		}
	}
}

// A system with a merged /usr and one without start both: no name is bound and
// linked (paperclip#10684).
func TestSplitAndMergedUsr(t *testing.T) {
	split := debian()
	split.RootDirs, split.RootLinks = []string{"usr", "etc", "opt", "bin", "sbin", "lib", "lib64"}, map[string]string{}
	for name, m := range map[string]Machine{"split": split, "merged": debian()} {
		p, err := NewPlan(claude("private"), m, ports)
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
			n := 0
			for _, mount := range p.Mounts {
				if mount.Dest == dir {
					n++
					if want := map[string]MountKind{"split": ROBind, "merged": Symlink}[name]; mount.Kind != want {
						t.Errorf("%s: %s is of kind %d", name, dir, mount.Kind)
					}
				}
			}
			if n != 1 {
				t.Errorf("%s: %s is made %d times", name, dir, n)
			}
		}
	}
}

func checkOrder(t *testing.T, p *Plan) {
	t.Helper()
	for i, later := range p.Mounts {
		if later.Kind == ROAgain {
			continue // changes a flag, hides nothing
		}
		for _, earlier := range p.Mounts[:i] {
			if within(earlier.Dest, later.Dest) {
				t.Errorf("%s, mounted later, hides %s", later.Dest, earlier.Dest)
			}
		}
		above := nearest(p.Mounts[:i], later.Dest)
		// A bubblewrap that is mended refuses that (bubblewrap#801, flatpak#6835).
		if above != nil && above.Kind == Symlink {
			t.Errorf("%s has a symbolic link on its way", later.Dest)
		}
		if above == nil || above.Kind != Bind {
			continue
		}
		if !later.Nested || filepath.Dir(later.Dest) != above.Dest {
			t.Errorf("%s is mounted below %s, which the box can write, unguarded or without pins", later.Dest, above.Dest)
		}
	}
	last := p.Mounts[len(p.Mounts)-1]
	if last.Kind != ROAgain || last.Dest != "/" {
		t.Errorf("the box's root is not made read-only last: %+v", last)
	}
}

func nearest(mounts []Mount, dest string) *Mount {
	p := Plan{Mounts: mounts}
	return p.above(dest)
}

func TestEveryTmpfsHasASize(t *testing.T) {
	p, err := NewPlan(claude("server"), debian(), ports)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range p.Mounts {
		if m.Kind == Tmpfs {
			n++
			if m.Size <= 0 {
				t.Errorf("%s may take half of the machine's memory", m.Dest)
			}
		}
		if m.Reason == "" {
			t.Errorf("%s has no reason", m.Dest)
		}
	}
	if n < 5 {
		t.Errorf("%d private folders", n)
	}
}

func TestRefusedPaths(t *testing.T) {
	rw := func(p string) func(*spec.Spec) { return func(s *spec.Spec) { s.Paths.RW = []string{p} } }
	ro := func(p string) func(*spec.Spec) { return func(s *spec.Spec) { s.Paths.RO = []string{p} } }
	cwd := func(p string) func(*spec.Spec) { return func(s *spec.Spec) { s.Cwd = p } }
	for name, change := range map[string]func(*spec.Spec){
		"root":                    cwd("/"),
		"data folder":             cwd("/data/.openmausbot"),
		"data folder ro":          ro("/data/.openmausbot"),
		"above the data folder":   rw("/data"),
		"in the data folder":      ro("/data/.openmausbot/events"),
		"all workspaces":          rw("/data/.openmausbot/workspaces"),
		"all hook tokens":         ro("/data/.openmausbot/hook-tokens"),
		"hook token, writable":    rw("/data/.openmausbot/hook-tokens/t1"),
		"home as work folder":     cwd("/data"),
		"/etc":                    rw("/etc"),
		"in /etc":                 ro("/etc/ssh"),
		"docker's socket":         ro("/var/run/docker.sock"),
		"/run":                    ro("/run"),
		"D-Bus":                   rw("/run/user/1000/bus"),
		"/proc":                   ro("/proc/1"),
		"/tmp whole":              rw("/tmp"),
		"/home whole":             ro("/home"),
		"Fly":                     ro("/.fly/api"),
		"read-only in the work":   ro("/srv/project/vendor"),
		"argv file in the work":   func(s *spec.Spec) { s.Paths.ArgvFiles = []string{"/srv/project/mcp.json"} },
		"perm folder of the data": func(s *spec.Spec) { s.Paths.PermSocketDir = "/data/.openmausbot" },
	} {
		s := claude("private")
		change(&s)
		_, err := NewPlan(s, debian(), ports)
		if err == nil || reason.Of(err).Code != reason.PathRefused {
			t.Errorf("%s: %v, want %s", name, err, reason.PathRefused)
		}
	}
	// Positive control: the same plan without the change stands.
	if _, err := NewPlan(claude("private"), debian(), ports); err != nil {
		t.Errorf("the plain spec is refused: %v", err)
	}
}

func TestTheDataFolderIsMaskedInAWorkFolderThatHoldsIt(t *testing.T) {
	m := debian()
	m.Home, m.DataDir = "/home/u", "/srv/project/.omb"
	p, err := NewPlan(claude("private"), m, ports)
	if err != nil {
		t.Fatal(err)
	}
	work := slices.IndexFunc(p.Mounts, func(m Mount) bool { return m.Dest == "/srv/project" && m.Kind == Bind })
	mask := slices.IndexFunc(p.Mounts, func(m Mount) bool { return m.Dest == "/srv/project/.omb" && m.Kind == Tmpfs })
	if work < 0 || mask < work {
		t.Errorf("work folder at %d, mask at %d", work, mask)
	}
}

// A mask for a folder that is not there would leave one in the user's tree, and
// no mask would show the folder as soon as the server makes it.
func TestADataFolderThatIsNotThereIsRefused(t *testing.T) {
	m := debian()
	m.DataExists = false
	if _, err := NewPlan(claude("server"), m, ports); err == nil || reason.Of(err).Code != reason.PathRefused {
		t.Errorf("in a HOME that the box sees: %v", err)
	}
	if _, err := NewPlan(claude("private"), m, ports); err != nil {
		t.Errorf("positive control, in an empty HOME: %v", err)
	}
}
