package box

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// debian is a machine with a merged /usr and a Cloud home's folders.
func debian() Machine {
	return Machine{
		Home: "/data", User: "maus", DataDir: "/data/.openmausbot", DataExists: true,
		RootDirs:  []string{"usr", "etc", "opt"},
		RootLinks: map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"},
		CPUFiles:  cpuFiles, Logins: []string{".claude", ".codex"},
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
	none := claude("private")
	none.Net.Mode, none.TTY, none.Cwd = "none", true, ""
	for name, s := range map[string]spec.Spec{"private": claude("private"), "server": cloud, "engine": engine, "no-network": none} {
		p, err := NewPlan(s, debian(), ports)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p.Env = map[string]string{"HOME": "/data", "BOTBOX": "1"}
		compare(t, name, render(p))
	}
}

// render numbers the files as a kit does.
func render(p *Plan) string {
	h := Handles{Mounts: map[string]int{}}
	next := ChildFD
	for _, m := range p.Mounts {
		if m.Kind == Bind || m.Kind == ROBind {
			h.Mounts[m.Dest] = next
			next++
		}
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

// TestNoMountHidesAnother holds for whatever a driver asks for.
func TestNoMountHidesAnother(t *testing.T) {
	pool := []string{
		"/srv/a", "/srv/a/b", "/srv/a/b/c", "/srv", "/data/p", "/data/p/q", "/data/x/y/z", "/tmp/w", "/tmp/w/v",
		"/usr/local/src/p", "/opt/tool", "/data/.openmausbot/workspaces/b1", "/data/.openmausbot/workspaces/b1/sub",
		"/data/.openmausbot/workspaces/b2", "/home/u/project", "/mnt/disk",
	}
	r := rand.New(rand.NewPCG(1, 2))
	planned := 0
	for range 5000 {
		s := claude([]string{"private", "server"}[r.IntN(2)])
		s.Cwd = pool[r.IntN(len(pool))]
		for range r.IntN(4) {
			s.Paths.RW = append(s.Paths.RW, pool[r.IntN(len(pool))])
			s.Paths.RO = append(s.Paths.RO, pool[r.IntN(len(pool))])
		}
		p, err := NewPlan(s, debian(), ports)
		if err != nil {
			continue // refused: nothing is mounted
		}
		planned++
		checkOrder(t, p)
	}
	if planned < 500 {
		t.Errorf("only %d of the plans were not refused: the test tries too little", planned)
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
		if above := nearest(p.Mounts[:i], later.Dest); above != nil && above.Kind == Bind && later.Dest != "/data/.openmausbot" {
			t.Errorf("%s is mounted below %s, which the box can write", later.Dest, above.Dest)
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
