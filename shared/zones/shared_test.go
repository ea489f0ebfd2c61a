package zones

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"testing"
)

// envReaders read the environment, in whichever package they are.
var envReaders = []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}

// checkShared gives what a package of values and pure functions may not do.
// The files are one package's, without tests.
func checkShared(files []source) []string {
	var faults []string
	fault := func(n ast.Node, what string) {
		faults = append(faults, fmt.Sprintf("%s: %s", fset.Position(n.Pos()), what))
	}
	info := resolve(files)
	for _, s := range files {
		ast.Inspect(s.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				fault(n, "starts a goroutine")
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					fault(n, "has an init function")
				}
			case *ast.SelectorExpr:
				if slices.Contains(envReaders, n.Sel.Name) {
					fault(n, "reads the environment")
				}
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					if name := packageVar(info, left); n.Tok != token.DEFINE && name != "" {
						fault(n, "changes the package variable "+name)
					}
				}
			case *ast.IncDecStmt:
				if name := packageVar(info, n.X); name != "" {
					fault(n, "changes the package variable "+name)
				}
			}
			return true
		})
	}
	return faults
}

// resolve says which declaration each name means. Imports are left
// unresolved, which is enough for the package's own variables.
func resolve(files []source) *types.Info {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	var trees []*ast.File
	for _, s := range files {
		trees = append(trees, s.tree)
	}
	conf := types.Config{Importer: noImports{}, Error: func(error) {}}
	conf.Check(files[0].folder(), fset, trees, info)
	return info
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not resolved") }

// packageVar gives the name of the package variable that expr is a part of.
func packageVar(info *types.Info, expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.Ident:
		if v, ok := info.Uses[e].(*types.Var); ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
			return v.Name()
		}
	case *ast.IndexExpr:
		return packageVar(info, e.X)
	case *ast.SelectorExpr:
		return packageVar(info, e.X)
	case *ast.StarExpr:
		return packageVar(info, e.X)
	case *ast.ParenExpr:
		return packageVar(info, e.X)
	}
	return ""
}

func TestShared(t *testing.T) {
	packages := map[string][]source{}
	for _, s := range sources(t) {
		if below(s.path, "shared") && !s.test() {
			packages[s.folder()] = append(packages[s.folder()], s)
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		report(t, checkShared(packages[folder]))
	}
}

func TestSharedRefuses(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"var table = []int{1}\nfunc f() int { table := 2; table++; table = 3; return table }\n", nil},
		{"type t struct{ n int }\nfunc (x *t) f() { x.n = 1 }\n", nil},
		{"func f() { go f() }\n", []string{"goroutine"}},
		{"func init() {}\n", []string{"init"}},
		{"import \"os\"\nvar x = os.Getenv(\"A\")\n", []string{"environment"}},
		{"var n int\nfunc f() { n++ }\n", []string{"variable n"}},
		{"var n int\nfunc f() { n = 2 }\n", []string{"variable n"}},
		{"var n = map[string]int{}\nfunc f() { n[\"a\"] = 2 }\n", []string{"variable n"}},
		{"var n struct{ a []int }\nfunc f() { n.a[0] += 2 }\n", []string{"variable n"}},
	} {
		wantFaults(t, tt.text, checkShared([]source{parse(t, "shared/a/a.go", "package a\n"+tt.text)}), tt.want...)
	}
}
