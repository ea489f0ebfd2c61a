package zones

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/scanner"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// marks are words for work that is put off. They are put together here so that
// this file does not hold them.
var marks = []string{"TO" + "DO", "FIX" + "ME"}

// checkSource gives the faults of one Go file.
func checkSource(s source) []string {
	var faults []string
	fault := func(form string, args ...any) {
		faults = append(faults, s.path+": "+fmt.Sprintf(form, args...))
	}
	if below(s.path, "init") {
		fault("init/ is data for the host's own init; no Go may be in it")
	}
	if nice, err := format.Source(s.text); err != nil || !bytes.Equal(nice, s.text) {
		fault("not as gofmt writes it")
	}
	for _, bad := range badNames {
		if strings.TrimSuffix(s.tree.Name.Name, "_test") == bad.Name {
			fault("package %s: %s", bad.Name, bad.Reason)
		}
	}
	for _, group := range s.tree.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:build") && strings.Contains(c.Text, "ignore") {
				fault("a file that no build includes is not code")
			}
		}
	}
	if s.test() {
		return faults
	}
	if n := bytes.Count(s.text, []byte("\n")); n > MaxFileLines {
		fault("%d lines, at most %d", n, MaxFileLines)
	} else if path.Base(s.path) == "main.go" && s.tree.Name.Name == "main" && n > MaxMainLines {
		fault("%d lines, at most %d in a main.go", n, MaxMainLines)
	}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.FuncDecl, *ast.FuncLit:
			first, last := fset.Position(n.Pos()).Line, fset.Position(n.End()).Line
			if last-first+1 > MaxFuncLines {
				fault("line %d: a function of %d lines, at most %d", first, last-first+1, MaxFuncLines)
			}
		}
		return true
	})
	return faults
}

func TestSources(t *testing.T) {
	for _, s := range sources(t) {
		report(t, checkSource(s))
	}
}

func TestSourcesRefuses(t *testing.T) {
	long := func(n int) string { return strings.Repeat("\t_ = 0\n", n) }
	for _, tt := range []struct {
		path, text string
		want       []string
	}{
		{"worker/a.go", "package a\n", nil},
		{"init/a.go", "package a\n", []string{"no Go"}},
		{"worker/a.go", "package  a\n", []string{"gofmt"}},
		{"worker/a.go", "package util\n", []string{"package util"}},
		{"worker/a.go", "//go:build " + "ignore\n\npackage a\n", []string{"no build"}},
		{"worker/a.go", "package a\n\nfunc f() {\n" + long(68) + "}\n", nil},
		{"worker/a.go", "package a\n\nfunc f() {\n" + long(69) + "}\n", []string{"71 lines"}},
		{"worker/a_test.go", "package a\n\nfunc f() {\n" + long(69) + "}\n", nil},
		{"worker/a.go", "package a\n\nvar f = func() {\n" + long(69) + "}\n", []string{"71 lines"}},
		{"worker/a.go", "package a\n\n" + strings.Repeat("// x\n", 449), []string{"451 lines"}},
		{"worker/main.go", "package main\n\n" + strings.Repeat("// x\n", 79), []string{"81 lines"}},
	} {
		wantFaults(t, tt.path, checkSource(parse(t, tt.path, tt.text)), tt.want...)
	}
}

// paragraphs are how the four questions of a package comment begin.
var paragraphs = []string{"Zone:", "Given:", "Authority:", "Refuses:"}

// checkDocs wants one package comment a package, with the four paragraphs in
// their order. The programs of testbed are exempt: they are no part of ours.
func checkDocs(files []source) []string {
	docs, order := map[string][]string{}, []string{}
	for _, s := range files {
		if s.test() || (below(s.path, "testbed") && s.tree.Name.Name == "main") {
			continue
		}
		if _, known := docs[s.folder()]; !known {
			order = append(order, s.folder())
			docs[s.folder()] = nil
		}
		if s.tree.Doc != nil {
			docs[s.folder()] = append(docs[s.folder()], s.tree.Doc.Text())
		}
	}
	var faults []string
	for _, folder := range order {
		if n := len(docs[folder]); n != 1 {
			faults = append(faults, fmt.Sprintf("%s: %d package comments, want 1", folder, n))
			continue
		}
		at := 0
		for para := range strings.SplitSeq(docs[folder][0], "\n\n") {
			if at < len(paragraphs) && strings.HasPrefix(para, paragraphs[at]) {
				at++
			}
		}
		if at < len(paragraphs) {
			faults = append(faults, fmt.Sprintf("%s: the package comment has no paragraph %s in its place", folder, paragraphs[at]))
		}
	}
	return faults
}

func TestDocs(t *testing.T) { report(t, checkDocs(sources(t))) }

func TestDocsRefuses(t *testing.T) {
	good := "// Package a is.\n//\n// Zone: x\n//\n// Given: x\n//\n// Authority: x\n//\n// Refuses: x\npackage a\n"
	one := func(text string) []source { return []source{parse(t, "worker/a/a.go", text)} }
	wantFaults(t, "good", checkDocs(one(good)))
	wantFaults(t, "none", checkDocs(one("package a\n")), "0 package comments")
	wantFaults(t, "two", checkDocs(append(one(good), parse(t, "worker/a/b.go", good))), "2 package comments")
	wantFaults(t, "one paragraph short", checkDocs(one(strings.Replace(good, "Given:", "Got:", 1))), "no paragraph Given:")
	wantFaults(t, "run together", checkDocs(one(strings.Replace(good, "//\n// Refuses", "// Refuses", 1))), "no paragraph Refuses:")
	wantFaults(t, "testbed's program", checkDocs([]source{parse(t, "testbed/x/main.go", "package main\n")}))
}

func TestNoMarks(t *testing.T) {
	walk(t, func(file string) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		switch path.Ext(file) {
		case ".go", ".sh", ".service", ".conf", ".toml", ".yaml", ".md", "":
			for _, line := range findMarks(string(text)) {
				t.Errorf("%s: %s", file, line)
			}
		}
	})
	if len(findMarks("a\n// "+marks[0]+": later\nb")) != 1 || len(findMarks("method, mastodon")) != 0 {
		t.Error("the search itself is broken")
	}
}

func findMarks(text string) []string {
	var found []string
	for line := range strings.Lines(text) {
		for _, word := range strings.FieldsFunc(line, func(r rune) bool { return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }) {
			for _, mark := range marks {
				if word == mark {
					found = append(found, strings.TrimSpace(line))
				}
			}
		}
	}
	return found
}

// codeLines counts the lines that hold code.
func codeLines(s source) int {
	var sc scanner.Scanner
	file := token.NewFileSet().AddFile(s.path, -1, len(s.text))
	sc.Init(file, s.text, nil, 0)
	seen := map[int]bool{}
	for {
		pos, tok, lit := sc.Scan()
		if tok == token.EOF {
			return len(seen)
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue // put in by the scanner
		}
		line := file.Line(pos)
		for i := range strings.Count(lit, "\n") + 1 {
			seen[line+i] = true
		}
	}
}

func TestLineBudgets(t *testing.T) {
	n := map[string]int{}
	for _, s := range sources(t) {
		for _, b := range binaries {
			if !s.test() && below(s.path, b.Folder) {
				n[b.Name] += codeLines(s)
			}
		}
	}
	for _, b := range binaries {
		if b.Lines > 0 && n[b.Name] > b.Lines {
			t.Errorf("%s: %d lines of code, at most %d: %s", b.Name, n[b.Name], b.Lines, b.Reason)
		}
	}
	if got := codeLines(parse(t, "a.go", "// c\npackage a\n\nvar x = `1\n2`\n")); got != 3 {
		t.Errorf("the count itself is broken: %d, want 3", got)
	}
}
