package box

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/worker/internal/spec"
)

// No spec gives a box that lacks something: the golden files have none of these
// words, and no plan has a field set.
func TestNoPlanLacksAnything(t *testing.T) {
	private, browser := claude("private"), claude("private")
	browser.Kind, browser.Argv = "browser", []string{"/usr/bin/chromium"}
	for name, s := range map[string]spec.Spec{"a turn": private, "a browser": browser} {
		p, err := NewPlan(s, debian(), ports)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if p.Lacks.options() != nil || p.Lacks.Memfd || p.Lacks.CoreLimit || p.Lacks.KeepScore || p.Lacks.Weakened != nil || p.Lacks.Quiet != nil {
			t.Errorf("%s lacks %+v", name, p.Lacks)
		}
		for _, m := range p.Mounts {
			if m.Careless != (Careless{}) {
				t.Errorf("%s: %s is %+v", name, m.Dest, m.Careless)
			}
		}
	}
}

// Each field takes away what it says and nothing else.
func TestWhatAPlanCanLack(t *testing.T) {
	usual := strings.Fields(rendered(t, func(*Plan) {}))
	for name, c := range map[string]struct {
		change      func(*Plan)
		more, fewer string
	}{
		"capabilities":   {func(p *Plan) { p.Lacks.CapDrop = true }, "--cap-add ALL", ""},
		"its own user":   {func(p *Plan) { p.Lacks.OwnID = true }, "--uid 0 --gid 0", ""},
		"core limit":     {func(p *Plan) { p.Lacks.CoreLimit = true }, "core=true", ""},
		"score":          {func(p *Plan) { p.Lacks.KeepScore = true }, "score=true", ""},
		"another filter": {func(p *Plan) { p.Lacks.Weakened = []byte{1} }, "", ""},
		"the filter":     {func(p *Plan) { p.Lacks.Weakened = []byte{} }, "", "--seccomp"},
		"bound by path": {func(p *Plan) {
			i := slices.IndexFunc(p.Mounts, func(m Mount) bool { return m.Dest == "/usr" })
			p.Mounts[i].Careless.ByPath = true
		}, "--ro-bind /usr", ""},
		"environment of bubblewrap": {func(p *Plan) { p.Lacks.Quiet = []string{"A=b"} }, "", ""},
	} {
		got := strings.Fields(rendered(t, c.change))
		for _, word := range strings.Fields(c.more) {
			if !slices.Contains(got, word) {
				t.Errorf("%s: %s is missing", name, word)
			}
		}
		if c.fewer != "" && (slices.Contains(got, c.fewer) || !slices.Contains(usual, c.fewer)) {
			t.Errorf("%s: %s is still there", name, c.fewer)
		}
		if more := len(got) - len(usual); more < 0 && c.fewer == "" || more > len(strings.Fields(c.more)) {
			t.Errorf("%s: %d words more", name, more)
		}
	}
	if words := strings.Fields(rendered(t, func(p *Plan) { p.Lacks.Memfd = true })); slices.Contains(words, "--args") || len(words) < 2*len(usual)-20 {
		t.Errorf("the options do not stand in the command line: %v", words)
	}
}

func rendered(t *testing.T, change func(*Plan)) string {
	t.Helper()
	p, err := NewPlan(claude("private"), debian(), ports)
	if err != nil {
		t.Fatal(err)
	}
	change(p)
	return render(p)
}

func TestAnUncheckedSource(t *testing.T) {
	dir := t.TempDir()
	fifo, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(fifo, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, link} {
		for _, unchecked := range []bool{false, true} {
			f, err := openSource(Mount{Kind: ROBind, Source: path, Dest: path, Careless: Careless{Unchecked: unchecked}})
			if (err == nil) != unchecked {
				t.Errorf("%s, unchecked %t: %v", path, unchecked, err)
			}
			if err == nil {
				f.Close()
			}
		}
	}
}
