package testbed_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// Who runs the blocks of which page. The folder's tests have to ask for them by
// rig.Page(t, PAGE, BED).
var beds = []struct{ page, bed, folder string }{
	{"docs/laptop.md", "laptop", "fresh"},
	{"docs/docker.md", "docker", "image"},
	{"docs/fly.md", "machine", "image"},
	{"docs/kubernetes.md", "pod", "image"},
	{"docs/systemd.md", "systemd", "systemd"},
}

// checkPage wants each block of a page to be run, or to say why it is not.
func checkPage(name, text string) (faults []string) {
	blocks, faults := rig.Blocks(text)
	for _, b := range blocks {
		known := slices.ContainsFunc(beds, func(row struct{ page, bed, folder string }) bool { return row.page == name && row.bed == b.Bed })
		switch {
		case b.Bed == rig.NotRun && !strings.Contains(b.Before, rig.Because):
			faults = append(faults, fmt.Sprintf("line %d: nobody runs the block, and nothing before it says %q and why", b.Line, rig.Because))
		case b.Bed != rig.NotRun && !known:
			faults = append(faults, fmt.Sprintf("line %d: no bed named %s runs the blocks of this page", b.Line, b.Bed))
		}
	}
	return faults
}

func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) < len(beds) {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range checkPage(strings.TrimPrefix(page, "../"), string(text)) {
			t.Errorf("%s: %s", page, fault)
		}
	}
	for _, row := range beds {
		rig.Page(t, row.page, row.bed)
		tests, _ := filepath.Glob(row.folder + "/*_test.go")
		call := fmt.Sprintf("rig.Page(t, %q, %q)", row.page, row.bed)
		if !slices.ContainsFunc(tests, func(name string) bool {
			text, err := os.ReadFile(name)
			return err == nil && strings.Contains(string(text), call)
		}) {
			t.Errorf("no test in %s has %s", row.folder, call)
		}
	}
}

func TestPagesRefuses(t *testing.T) {
	const ok = "Words.\n\n```sh laptop\nmake\n```\n```text\nmade\n```\n\n" + rig.Because + "it costs money.\n\n```sh not-run\npay\n```\n"
	for _, c := range []struct{ what, text, want string }{
		{"as it should be", ok, ""},
		{"no bed", strings.Replace(ok, "sh laptop", "sh", 1), "a block is"},
		{"another page's bed", strings.Replace(ok, "sh laptop", "sh docker", 1), "no bed named docker"},
		{"no reason", strings.Replace(ok, rig.Because, "", 1), "nobody runs the block"},
		{"a reason for another block", strings.Replace(ok, "```sh not-run", "```sh laptop\nx\n```\n\nMore.\n\n```sh not-run", 1), "nobody runs the block"},
		{"output of nothing", "```text\nx\n```\n", "a block is"},
		{"another language", strings.Replace(ok, "sh laptop", "console", 1), "a block is"},
		{"no end", strings.TrimSuffix(ok, "```\n"), "no end"},
	} {
		faults := checkPage("docs/laptop.md", c.text)
		if (len(faults) == 0) != (c.want == "") || c.want != "" && !strings.Contains(strings.Join(faults, "\n"), c.want) {
			t.Errorf("%s: %q", c.what, faults)
		}
	}
}

// What a page says is printed has to be, each line in its own block.
func TestPagesPrinted(t *testing.T) {
	blocks, faults := rig.Blocks("```sh laptop\necho one; echo 2 times\n```\n```text\n  one\n2 …s\n```\n\n```sh laptop\necho two\n```\n```text\ntwo\n```\n")
	if len(faults) != 0 || len(blocks) != 2 {
		t.Fatal(blocks, faults)
	}
	script := rig.Script(blocks)
	out, rest, _ := strings.Cut(script, "\necho two") // the first block's mark is in out
	_, mark1, _ := strings.Cut(out, "echo '")
	_, mark2, _ := strings.Cut(rest, "echo '")
	first, second := strings.TrimSuffix(mark1, "'"), strings.TrimSuffix(mark2, "'\n")
	for _, c := range []struct {
		what, out string
		ok        bool
	}{
		{"all", "one\n2 times\n" + first + "\ntwo\n" + second + "\n", true},
		{"a line is missing", "one\n" + first + "\ntwo\n" + second + "\n", false},
		{"in the other block", "one\ntwo\n2 times\n" + first + "\n" + second + "\n", false},
		{"not to the end", "one\n2 times\n" + first + "\ntwo\n", false},
	} {
		seen := &recorder{TB: t}
		rig.Printed(seen, "page", blocks, c.out)
		if seen.failed == c.ok {
			t.Errorf("%s: failed %t", c.what, seen.failed)
		}
	}
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
