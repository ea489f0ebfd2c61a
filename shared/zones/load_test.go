package zones

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// root is the repository's root, from this package's folder.
const root = "../.."

// pkg is what the import rules look at.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string // without those of tests
	Deps       []string
	CgoFiles   []string
	Error      *struct{ Err string }
}

// path gives the package's folder below the root; "." is the root itself.
func (p pkg) path() string {
	rel := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, Module), "/")
	if rel == "" {
		return "."
	}
	return rel
}

// goTool runs the go command at the root, for the platform we ship.
func goTool(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, exit.Stderr)
		}
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// ours lists this module's packages as the go command sees them.
func ours(t *testing.T) []pkg {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(goTool(t, "list", "-e", "-json=ImportPath,Standard,Imports,Deps,CgoFiles,Error", "./..."))))
	var list []pkg
	for {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Error != nil {
			t.Errorf("%s: %s", p.ImportPath, p.Error.Err)
		}
		list = append(list, p)
	}
}

// source is one Go file.
type source struct {
	path string // below the root, with slashes
	text []byte
	tree *ast.File
}

func (s source) test() bool     { return strings.HasSuffix(s.path, "_test.go") }
func (s source) folder() string { return filepath.ToSlash(filepath.Dir(s.path)) }

var fset = token.NewFileSet()

// walk gives the repository's files, without dot folders (.git, .cache) and
// test data.
func walk(t *testing.T, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || rel == "bin"):
			return filepath.SkipDir
		case d.Type().IsRegular():
			visit(filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sources parses every Go file.
func sources(t *testing.T) []source {
	t.Helper()
	var list []source
	walk(t, func(path string) {
		if strings.HasSuffix(path, ".go") {
			text, err := os.ReadFile(filepath.Join(root, path))
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, parse(t, path, string(text)))
		}
	})
	if len(list) == 0 {
		t.Fatal("no Go file found")
	}
	return list
}

func parse(t *testing.T, path, text string) source {
	t.Helper()
	tree, err := parser.ParseFile(fset, path, text, parser.ParseComments)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return source{path, []byte(text), tree}
}

// below tells whether path is folder or something in it.
func below(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// wantFaults compares what a check found with what it must find.
func wantFaults(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: found %q, want %q", what, got, want)
		return
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("%s: found %q, want %q", what, got[i], want[i])
		}
	}
}

func report(t *testing.T, faults []string) {
	t.Helper()
	for _, f := range faults {
		t.Error(f)
	}
}
