package rig

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Edit replaces text that stands once in a file. Where Old is empty there is no
// such file, and New is the whole of it.
type Edit struct{ File, Old, New string }

// Overlay writes the edited files and the map that the compiler takes by its
// flag -overlay. A mutation is compiled in that way and no other, so no program
// of ours has a switch for it.
func Overlay(t testing.TB, top string, edits []Edit) (file string) {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for _, e := range edits {
		path := filepath.Join(top, e.File)
		from := path
		if earlier, ok := replace[path]; ok {
			from = earlier
		}
		text, err := os.ReadFile(from)
		if err != nil && !(e.Old == "" && errors.Is(err, fs.ErrNotExist)) {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), e.Old); e.Old != "" && n != 1 || e.Old == "" && err == nil {
			t.Fatalf("%s holds %q %d times, want once", e.File, e.Old, n)
		}
		replace[path] = filepath.Join(dir, strings.ReplaceAll(e.File, "/", "_"))
		edited := strings.Replace(string(text), e.Old, e.New, 1)
		if err := os.WriteFile(replace[path], []byte(edited), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
