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

// Edit names a source file, a text that stands in it once, and what replaces
// that. Where the second is empty there is no such file, and the third is the
// whole of it.
type Edit [3]string

// Overlay writes the edited copies of files below root, and the map that the
// compiler takes to read them in place of the real ones (go build -overlay). A
// mutation is compiled in that way and no other, so no program of ours has a
// switch for it. An edit whose text does not stand there exactly once fails the
// test: what it was to change has changed.
func Overlay(t testing.TB, root string, edits []Edit) (file string) {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for _, e := range edits {
		name, old, new := e[0], e[1], e[2]
		path := filepath.Join(root, name)
		from := path
		if earlier, ok := replace[path]; ok {
			from = earlier
		}
		text, err := os.ReadFile(from)
		if err != nil && !(old == "" && errors.Is(err, fs.ErrNotExist)) {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), old); old != "" && n != 1 || old == "" && err == nil {
			t.Fatalf("%s holds %q %d times, want once", name, old, n)
		}
		replace[path] = filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(replace[path], []byte(strings.Replace(string(text), old, new, 1)), 0o644); err != nil {
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
