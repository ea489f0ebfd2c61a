package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A page of docs/ has shell commands in blocks that begin with "```sh BED".
// BED is who runs them in the tests; NotRun is nobody, and then the line before
// the block says why. A block that begins with "```text" right behind one says
// what is printed: each of its lines has to be there, "…" stands for anything.
const (
	NotRun  = "not-run"
	Because = "Not run by our tests: "
)

// Block is one block of commands.
type Block struct {
	Line   int
	Bed    string
	Script string
	Prints []string
	Before string // the paragraph before it
}

// Blocks reads a page's blocks, and gives what is wrong with their form.
func Blocks(page string) (blocks []Block, faults []string) {
	var fence, body, paragraph string
	fresh, gap := false, false // right behind a block of commands; behind an empty line
	for i, line := range strings.Split(page, "\n") {
		switch {
		case fence == "" && strings.HasPrefix(line, "```"):
			fence, body = strings.TrimSpace(line[3:]), ""
			kind, bed, _ := strings.Cut(fence, " ")
			switch {
			case kind == "sh" && bed != "":
				blocks = append(blocks, Block{Line: i + 1, Bed: bed, Before: paragraph})
			case fence == "text" && fresh:
			default:
				faults = append(faults, fmt.Sprintf("line %d: a block is ```sh BED, or ```text right behind one: %q", i+1, fence))
			}
		case fence != "" && line == "```":
			if len(blocks) > 0 && strings.HasPrefix(fence, "sh ") {
				blocks[len(blocks)-1].Script = body
			} else if len(blocks) > 0 {
				blocks[len(blocks)-1].Prints = strings.Split(strings.TrimSuffix(body, "\n"), "\n")
			}
			fresh, fence, paragraph = strings.HasPrefix(fence, "sh "), "", ""
		case fence != "":
			body += line + "\n"
		case line == "":
			gap = true
		default:
			if gap {
				paragraph = ""
			}
			paragraph, fresh, gap = paragraph+line+"\n", false, false
		}
	}
	if fence != "" {
		faults = append(faults, "a block has no end")
	}
	return blocks, faults
}

// Page gives the blocks of a page that a bed runs.
func Page(t testing.TB, page, bed string) (mine []Block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(), page))
	if err != nil {
		t.Fatal(err)
	}
	blocks, faults := Blocks(string(text))
	for _, f := range faults {
		t.Errorf("%s: %s", page, f)
	}
	for _, b := range blocks {
		if b.Bed == bed {
			mine = append(mine, b)
		}
	}
	if len(mine) == 0 {
		t.Fatalf("%s has no block for the bed %s", page, bed)
	}
	return mine
}

const mark = "--- botbox page, line %d ends here ---"

// Script is all blocks as one shell script, which ends with the first command
// that fails.
func Script(blocks []Block) string {
	script := "set -e\n"
	for _, b := range blocks {
		script += b.Script + fmt.Sprintf("echo '"+mark+"'\n", b.Line)
	}
	return script
}

// Printed holds what a Script printed to what the page says.
func Printed(t testing.TB, page string, blocks []Block, out string) {
	t.Helper()
	for _, b := range blocks {
		said, rest, ended := strings.Cut(out, fmt.Sprintf(mark, b.Line)+"\n")
		if !ended {
			t.Errorf("%s, line %d: it did not come to its end:\n%s%s", page, b.Line, b.Script, out)
			return
		}
		for _, line := range b.Prints {
			if !wildcard(line).MatchString(said) {
				t.Errorf("%s, line %d: it did not print %q but\n%s", page, b.Line, line, said)
			}
		}
		out = rest
	}
}

// wildcard finds a line in which each … is anything.
func wildcard(line string) *regexp.Regexp {
	parts := strings.Split(strings.TrimSpace(line), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`(?m)^\s*` + strings.Join(parts, ".*") + `\s*$`)
}
