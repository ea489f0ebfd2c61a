package zones

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ruleFor gives the rule with the longest folder that holds path.
func ruleFor(path string) (Rule, bool) {
	var best Rule
	for _, r := range rules {
		if below(path, r.Folder) && len(r.Folder) > len(best.Folder) {
			best = r
		}
	}
	return best, best.Folder != ""
}

// covers tells whether path is what pattern stands for.
func covers(pattern, path string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return below(path, base)
	}
	return path == pattern
}

func coveredBy(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return covers(pattern, path) })
}

// testOnly tells whether the package in folder is for tests. testbed needs
// no such name: no rule but its own lists it.
func testOnly(folder string) bool {
	name := path.Base(folder)
	return strings.HasSuffix(name, TestOnly) && name != TestOnly
}

// checkImports gives every import of p that its rule does not allow.
// standard tells a package of the standard library.
func checkImports(p pkg, standard func(string) bool) []string {
	rule, ok := ruleFor(p.path())
	if !ok {
		return []string{p.path() + ": no rule covers this folder"}
	}
	var faults []string
	refuse := func(verb, path, why string) {
		faults = append(faults, fmt.Sprintf("%s %s %s: %s", p.path(), verb, path, why))
	}
	for _, path := range p.Imports {
		own, isOwn := strings.CutPrefix(path, Module+"/")
		switch {
		case isOwn:
			switch {
			case !coveredBy(rule.Own, own):
				refuse("imports", own, rule.Reason)
			case testOnly(own) && !testOnly(p.path()):
				refuse("imports", own, "it is for tests only")
			}
		case path == "C" || !standard(path):
			if !coveredBy(rule.Foreign, path) {
				refuse("imports", path, rule.Reason)
			}
		}
	}
	for _, ban := range rule.Bans {
		verb, list := "imports", p.Imports
		if ban.Linked {
			verb, list = "links", append(slices.Clone(p.Imports), p.Deps...)
		}
		for _, path := range slices.Compact(slices.Sorted(slices.Values(list))) {
			if covers(ban.Path, path) && path != ban.Except {
				refuse(verb, path, ban.Reason)
			}
		}
	}
	if len(p.CgoFiles) > 0 {
		refuse("uses", "cgo", "every program is static and pure Go")
	}
	return faults
}

func TestImports(t *testing.T) {
	std := map[string]bool{}
	for _, path := range strings.Fields(string(goTool(t, "list", "std"))) {
		std[path] = true
	}
	for _, p := range ours(t) {
		report(t, checkImports(p, func(path string) bool { return std[path] }))
	}
	// A rule about a package that is gone guards nothing.
	for _, rule := range rules {
		if rule.Reason == "" {
			t.Errorf("%s: the rule has no reason", rule.Folder)
		}
		for _, ban := range rule.Bans {
			if base, _ := strings.CutSuffix(ban.Path, "/..."); !std[base] && base != "unsafe" {
				t.Errorf("%s: the forbidden package %s does not exist", rule.Folder, ban.Path)
			}
			if ban.Reason == "" {
				t.Errorf("%s: the ban on %s has no reason", rule.Folder, ban.Path)
			}
		}
	}
}

func TestImportsRefuses(t *testing.T) {
	standard := func(path string) bool { return !strings.Contains(path, ".") }
	for _, tt := range []struct {
		folder  string
		imports []string
		deps    []string
		want    []string
	}{
		{"supervisor/internal/reap", []string{"os", xsys, Module + "/shared/wire"}, []string{"net"}, nil},
		{"supervisor", []string{"net"}, nil, []string{"imports net:"}},
		{"supervisor", nil, []string{"net/http"}, []string{"links net/http:"}},
		{"supervisor", []string{Module + "/shared/seccomp"}, nil, []string{"imports shared/seccomp:"}},
		{"supervisor", []string{"github.com/coreos/go-systemd/v22/activation"}, nil, []string{"activation"}},
		{"worker/internal/box", []string{"net/http", Module + "/shared/seccomp", "go.etcd.io/bbolt"}, nil, nil},
		{"worker/cli", []string{"github.com/creack/pty"}, nil, []string{"imports github.com/creack/pty"}},
		{"worker/cli", []string{"C"}, nil, []string{"imports C:"}},
		{"worker/cli", []string{Module + "/testbed/provider"}, nil, []string{"imports testbed/provider"}},
		{"worker/internal/gate/egress", []string{Module + "/worker/internal/gate/gatetest"}, nil, []string{"for tests only"}},
		{"worker/internal/gate/gatetest", []string{Module + "/worker/internal/gate/nettest"}, nil, nil},
		{"boxprobe", []string{"net", "encoding/json", "crypto/rand", Module + "/shared/layers"}, []string{"crypto/rand"}, nil},
		{"boxprobe", []string{"crypto/sha256"}, nil, []string{"imports crypto/sha256:"}},
		{"boxprobe/boxentry", []string{"os", xsys, Module + "/shared/wire"}, nil, nil},
		{"boxprobe/boxentry", []string{Module + "/shared/seccomp"}, []string{"net"}, []string{"shared/seccomp", "links net:"}},
		{"shared/boxenv", []string{"strings", Module + "/shared/reason"}, nil, nil},
		{"shared/boxenv", []string{xsys}, nil, []string{"imports " + xsys}},
		{"shared/posture", []string{xsys}, nil, nil},
		{"shared/wire", []string{"os"}, nil, []string{"imports os:"}},
		{"shared/reason", []string{Module + "/shared/wire"}, nil, []string{"imports shared/wire"}},
		{"elsewhere", nil, nil, []string{"no rule"}},
		{".", nil, nil, []string{"no rule"}},
	} {
		p := pkg{ImportPath: Module + "/" + tt.folder, Imports: tt.imports, Deps: tt.deps}
		if tt.folder == "." {
			p.ImportPath = Module
		}
		wantFaults(t, tt.folder, checkImports(p, standard), tt.want...)
	}
	cgo := pkg{ImportPath: Module + "/worker", CgoFiles: []string{"a.go"}}
	wantFaults(t, "cgo", checkImports(cgo, standard), "uses cgo")
}

// checkConfine gives the files that c refuses, and the files of its list that
// no longer need to be there.
func checkConfine(c Confine, files []source) []string {
	var faults []string
	used := map[string]bool{}
	for _, s := range files {
		if s.test() || testOnly(s.folder()) || !below(s.path, c.Folder) || !uses(s, c) {
			continue
		}
		used[s.path] = true
		if !slices.Contains(c.Files, s.path) {
			faults = append(faults, fmt.Sprintf("%s: may not use %s%s: %s", s.path, c.Import, c.Call, c.Reason))
		}
	}
	for _, file := range c.Files {
		if !used[file] {
			faults = append(faults, fmt.Sprintf("%s: is listed for %s%s and does not use it", file, c.Import, c.Call))
		}
	}
	return faults
}

// uses tells whether the file imports c.Import or names the method c.Call.
func uses(s source, c Confine) bool {
	for _, imp := range s.tree.Imports {
		if path, _ := strconv.Unquote(imp.Path.Value); c.Import != "" && path == c.Import {
			return true
		}
	}
	found := false
	ast.Inspect(s.tree, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		found = found || ok && c.Call != "" && sel.Sel.Name == c.Call
		return !found
	})
	return found
}

func TestConfines(t *testing.T) {
	files := sources(t)
	for _, c := range confines {
		report(t, checkConfine(c, files))
	}
	for _, r := range revealTable {
		if r.Reason == "" {
			t.Errorf("%s: no reason to reveal", r.File)
		}
	}
}

func TestConfinesRefuses(t *testing.T) {
	files := []source{
		parse(t, "worker/a.go", "package a\nimport \"os/exec\"\nvar X = exec.Command\n"),
		parse(t, "worker/b.go", "package a\nfunc f(s secret.Text) { g := s.Reveal; g() }\n"),
		parse(t, "worker/xtest/a.go", "package xtest\nimport \"os/exec\"\nvar X = exec.Command\n"),
		parse(t, "worker/b_test.go", "package a\nimport \"os/exec\"\nvar Y = exec.Command\n"),
	}
	wantFaults(t, "allowed import", checkConfine(Confine{Folder: "worker", Import: "os/exec", Files: []string{"worker/a.go"}}, files))
	wantFaults(t, "refused import", checkConfine(Confine{Folder: "worker", Import: "os/exec"}, files), "worker/a.go: may not use os/exec")
	wantFaults(t, "method value", checkConfine(Confine{Folder: "worker", Call: "Reveal"}, files), "worker/b.go: may not use Reveal")
	wantFaults(t, "stale row", checkConfine(Confine{Folder: "worker", Call: "Reveal", Files: []string{"worker/b.go", "worker/c.go"}}, files), "worker/c.go: is listed")
	wantFaults(t, "another folder", checkConfine(Confine{Folder: "shared", Call: "Reveal"}, files))
}
