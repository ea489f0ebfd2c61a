package zones

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// checkGoMod wants no replace directive, and for each required module a
// reason: words behind the line or in a comment line above it.
func checkGoMod(text string) []string {
	var faults []string
	block, above := "", ""
	for line := range strings.Lines(text) {
		code, comment, _ := strings.Cut(strings.TrimSpace(line), "//")
		code, comment = strings.TrimSpace(code), strings.TrimSpace(comment)
		comment = strings.TrimSpace(strings.TrimPrefix(comment, "indirect"))
		comment = strings.Trim(comment, "; ")
		verb, rest, _ := strings.Cut(code, " ")
		if block != "" && code != ")" {
			verb, rest = block, code
		}
		switch {
		case code == ")":
			block = ""
		case rest == "(":
			block, above = verb, ""
			continue
		case verb == "replace":
			faults = append(faults, "replace "+rest+": a build would not be of what go.mod names")
		case verb == "require" && rest != "" && comment == "" && above == "":
			faults = append(faults, "require "+rest+": no reason")
		}
		above = ""
		if code == "" {
			above = comment
		}
	}
	return faults
}

func TestGoMod(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	report(t, checkGoMod(string(text)))
}

func TestGoModRefuses(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"module m\n\nrequire a/b v1.0.0 // why\n", nil},
		{"require (\n\t// why\n\ta/b v1.0.0\n\tc/d v1.0.0 // why too\n)\n", nil},
		{"require a/b v1.0.0\n", []string{"a/b"}},
		{"require (\n\ta/b v1.0.0 // indirect\n\tc/d v1.0.0 // indirect; a/b needs it\n)\n", []string{"a/b"}},
		{"require (\n\t// why\n\ta/b v1.0.0\n\tc/d v1.0.0\n)\n", []string{"c/d"}},
		{"replace a/b => ../b\n", []string{"replace"}},
		{"replace (\n\ta/b => ../b // why\n)\n", []string{"replace"}},
	} {
		wantFaults(t, tt.text, checkGoMod(tt.text), tt.want...)
	}
}

var (
	releaseForm  = regexp.MustCompile(`^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})$`)
	changeKinds  = []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
	unreleased   = "## [Unreleased]"
	continuation = regexp.MustCompile(`^  \S`)
)

// checkChangelog wants the form of Keep a Changelog: a title, a part for what
// is not released yet, then releases with dates, newest first; in each part
// the six kinds of change, each with a list.
func checkChangelog(text string) []string {
	lines := strings.Split(text, "\n")
	if lines[0] != "# Changelog" {
		return []string{"line 1: want # Changelog"}
	}
	var faults []string
	fault := func(i int, form string, args ...any) {
		faults = append(faults, fmt.Sprintf("line %d: ", i+1)+fmt.Sprintf(form, args...))
	}
	parts, kind, date := 0, "", "9999-99-99"
	for i, line := range lines {
		release := releaseForm.FindStringSubmatch(line)
		switch {
		case line == "" || i == 0 || (parts == 0 && !strings.HasPrefix(line, "#")):
		case line == unreleased && parts == 0:
			parts++
		case release != nil && parts > 0:
			if release[2] > date {
				fault(i, "%s comes after an older release", release[1])
			}
			date, kind = release[2], ""
			parts++
		case strings.HasPrefix(line, "### ") && parts > 0:
			if kind = line[4:]; !slices.Contains(changeKinds, kind) {
				fault(i, "no such kind of change: %s", kind)
			}
		case kind != "" && (strings.HasPrefix(line, "- ") || continuation.MatchString(line)):
		case parts > 1 && strings.HasPrefix(line, "["): // where a release's link leads
		default:
			fault(i, "not in its place: %s", line)
		}
	}
	if parts == 0 {
		fault(len(lines)-1, "no %s", unreleased)
	}
	return faults
}

func TestChangelog(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		if os.Getenv("BOTBOX_MUST_RUN") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	report(t, checkChangelog(string(text)))
}

func TestChangelogRefuses(t *testing.T) {
	const good = "# Changelog\n\nAll changes that a user notices.\n\n## [Unreleased]\n\n### Added\n\n- A thing\n  in two lines.\n\n## [1.1.0] - 2026-11-02\n\n### Fixed\n\n- A fault.\n\n## [1.0.0] - 2026-11-01\n\n### Added\n\n- All.\n"
	swap := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	wantFaults(t, "good", checkChangelog(good))
	wantFaults(t, "no title", checkChangelog(swap("# Changelog", "# Changes")), "line 1")
	wantFaults(t, "unknown kind", checkChangelog(swap("### Fixed", "### Repaired")), "Repaired")
	wantFaults(t, "no date", checkChangelog(swap("[1.1.0] - 2026-11-02", "[1.1.0]")), "[1.1.0]")
	wantFaults(t, "order", checkChangelog(swap("2026-11-02", "2026-10-02")), "1.0.0 comes after")
	wantFaults(t, "no list", checkChangelog(swap("- A fault.", "A fault.")), "A fault.")
	wantFaults(t, "text before a kind", checkChangelog(swap("### Added\n\n- A thing\n  in two lines.\n", "- A thing\n")), "- A thing")
	wantFaults(t, "nothing but a title", checkChangelog("# Changelog\n"), "no ## [Unreleased]")
}

func TestZones(t *testing.T) {
	for _, z := range zones {
		if _, err := os.Stat(filepath.Join(root, z.Folder)); err != nil {
			t.Errorf("zone %s: %v", z.Folder, err)
		}
		if z.Name == "" || z.RunsAs == "" || z.Trust == "" {
			t.Errorf("zone %s: an empty cell", z.Folder)
		}
	}
	for _, s := range sources(t) {
		if !slices.ContainsFunc(zones, func(z Zone) bool { return below(s.path, z.Folder) }) {
			t.Errorf("%s: in no zone", s.path)
		}
	}
	for _, b := range binaries {
		if !slices.ContainsFunc(zones, func(z Zone) bool {
			return below(b.Folder, z.Folder) && slices.Contains(strings.Split(z.Builds, ", "), b.Name)
		}) {
			t.Errorf("program %s: its zone does not build it", b.Name)
		}
	}
}

// A program that was built beside its source and committed is nothing that a
// reviewer can read.
func TestNoProgramIsCommitted(t *testing.T) {
	out, err := exec.Command("git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		if os.Getenv("BOTBOX_MUST_RUN") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	names := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if !slices.Contains(names, "go.mod") {
		t.Fatalf("git lists %d files, and no go.mod", len(names))
	}
	for _, name := range names {
		f, err := os.Open(filepath.Join(root, name))
		if err != nil {
			continue // deleted and not committed yet
		}
		magic := make([]byte, 4)
		if n, _ := f.Read(magic); string(magic[:n]) == "\x7fELF" {
			t.Errorf("%s is a program", name)
		}
		f.Close()
	}
}
