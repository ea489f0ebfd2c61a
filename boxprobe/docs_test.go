package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/layers"
	"github.com/openmausbot/botbox/testbed/rig"
)

// SECURITY.md lists every check that there is, and no other.
func TestSecurityListsTheChecks(t *testing.T) {
	var b strings.Builder
	b.WriteString("| check | profile | layer | tries | expects | broken by |\n|---|---|---|---|---|---|\n")
	for _, c := range table() {
		by := strings.Join(c.BrokenBy, ", ")
		if u, ok := unbroken[c.ID]; ok {
			by = "none: " + u.why + " (`" + u.shown[strings.LastIndex(u.shown, ".")+1:] + "`)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", c.ID, c.Profile, c.Layer, c.Tries, c.Expect, by)
	}
	rig.Section(t, "SECURITY.md", "checks", b.String())
}

// The page's table of layers is made of the rows that the report shows.
func TestSecurityListsTheLayers(t *testing.T) {
	rig.Section(t, "SECURITY.md", "layers", layers.Markdown())
}

// Each check has a mutation, or a reason and a test in its place.
func TestEveryCheckCanFail(t *testing.T) {
	rows := map[string]bool{}
	for _, c := range table() {
		u, ok := unbroken[c.ID]
		if rows[c.ID] = true; ok == (len(c.BrokenBy) > 0) {
			t.Errorf("%s has the mutations %v, and unbroken says %q", c.ID, c.BrokenBy, u.why)
		}
	}
	for id, u := range unbroken {
		if exists(t, u.shown); !rows[id] || u.why == "" {
			t.Errorf("%s in unbroken is no check, or has no reason", id)
		}
	}
}

// A row has every check of its layer, and no other.
func TestEveryCheckBelongsToALayer(t *testing.T) {
	of := map[string][]string{}
	for _, c := range table() {
		of[c.Layer] = append(of[c.Layer], c.ID)
	}
	for _, r := range layers.All() {
		if !slices.Equal(slices.Sorted(slices.Values(r.Checks)), slices.Sorted(slices.Values(of[r.ID]))) {
			t.Errorf("%s has the checks %v, boxprobe's table says %v", r.ID, r.Checks, of[r.ID])
		}
		if len(r.Checks) > 0 && (r.Means == "" || r.Do == "") {
			t.Errorf("%s does not say what a failed check means and what to do", r.ID)
		}
		delete(of, r.ID)
	}
	for layer := range maps.Keys(of) {
		t.Errorf("no row has the layer %s", layer)
	}
}

// What is not proved is called so, and is little. Every test that is named is
// there, and every boot step.
func TestEveryClaimIsShown(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(rig.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	unproved, ids := 0, map[string]bool{}
	for _, r := range layers.All() {
		if ids[r.ID] || r.ID == "" || r.Name == "" || r.Where == "" || r.Stops == "" || len(r.Not) == 0 || len(r.Checks)+len(r.Shown) == 0 {
			t.Errorf("the row %q is not whole, or there twice", r.ID)
		}
		ids[r.ID] = true
		for _, by := range r.Shown {
			if step, ok := strings.CutPrefix(by, "step "); !ok {
				exists(t, by)
			} else if !strings.Contains(string(page), ". `"+step+"`: ") { // a list that is held to the steps themselves
				t.Errorf("%s: there is no boot step %s", r.ID, step)
			}
		}
		for _, g := range r.Not {
			if g.Unproved() {
				unproved++
				continue
			}
			exists(t, g.Shown)
		}
	}
	if unproved > layers.MaxUnproved || unproved != strings.Count(layers.Markdown(), "(unproved)") {
		t.Errorf("%d gaps are unproved", unproved)
	}
}

// exists looks for a test FOLDER.NAME.
func exists(t *testing.T, name string) {
	t.Helper()
	folder, test, _ := strings.Cut(name, ".Test")
	files, _ := filepath.Glob(filepath.Join(rig.Root(), folder, "*_test.go"))
	declared := regexp.MustCompile(`(?m)^func Test` + regexp.QuoteMeta(test) + `\(t \*testing\.T\)`)
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && declared.Match(b) {
			return
		}
	}
	t.Errorf("there is no test %s", name)
}
