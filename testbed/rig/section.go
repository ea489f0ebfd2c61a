package rig

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var updateDocs = flag.Bool("update-docs", false, "rewrite the parts of README.md and SECURITY.md that are made from tables")

// Section holds a page to the table that a part of it is made from: the part
// between <!-- name --> and <!-- /name -->.
func Section(t testing.TB, page, name, want string) {
	t.Helper()
	path := filepath.Join(Root(), page)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	before, rest, found := strings.Cut(string(b), begin)
	got, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no part %s", page, name)
	}
	if got == want {
		return
	}
	if !*updateDocs {
		t.Errorf("%s: the part %s is not what the table says; go test -update-docs rewrites it", page, name)
		return
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
