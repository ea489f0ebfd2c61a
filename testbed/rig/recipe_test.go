package rig

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Recipes find what is there without asking anybody, leave nothing of what went
// wrong, and refuse what they do not make.
func TestRecipes(t *testing.T) {
	for _, c := range []struct {
		script, variable string
		asks             []string // its arguments
		final            string   // what it prints; KEY stands for its own hash
		within           string   // the file in it that shows that it is whole; empty: it is one file
		not, says        string   // an argument that it refuses, and how
	}{
		{"testbed/vm/make.sh", "BOTBOX_VM_DIR", nil, "trixie-KEY", "versions", "sid", "there is no recipe for sid"},
		{"testbed/image/make.sh", "BOTBOX_IMAGE_DIR", []string{"slim"}, "slim-KEY.tar", "", "sid", "there is no recipe for sid"},
		{"testbed/image/make.sh", "BOTBOX_IMAGE_DIR", []string{"bookworm"}, "bookworm-KEY.tar", "", "", "there is no recipe for nothing"},
	} {
		t.Run(strings.Join(append([]string{c.script}, c.asks...), " "), func(t *testing.T) {
			recipe, err := os.ReadFile(filepath.Join(Root(), c.script))
			if err != nil {
				t.Fatal(err)
			}
			if os.Geteuid() != 0 {
				Missing(t, "%s needs root", c.script)
			}
			cache, bin := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, "mmdebstrap"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			run := func(words ...string) (string, string, error) {
				cmd := exec.Command("/bin/sh", append([]string{filepath.Join(Root(), c.script)}, words...)...)
				cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin:/usr/sbin:/sbin", c.variable + "=" + cache}
				var errs strings.Builder
				cmd.Stderr = &errs
				out, err := cmd.Output()
				return string(out), errs.String(), err
			}
			if out, said, err := run(c.asks...); err == nil || out != "" || !strings.Contains(said, "\nhint: ") {
				t.Errorf("mmdebstrap failed: %q %q %v", out, said, err)
			}
			if left, _ := os.ReadDir(cache); len(left) != 1 || left[0].Name() != ".gitignore" {
				t.Errorf("left: %v", left)
			}
			if out, said, err := run(strings.Fields(c.not)...); err == nil || out != "" || !strings.Contains(said, c.says+"\nhint: ") {
				t.Errorf("another argument: %q %q %v", out, said, err)
			}
			final := filepath.Join(cache, strings.Replace(c.final, "KEY", fmt.Sprintf("%x", sha256.Sum256(recipe))[:12], 1))
			whole := filepath.Join(final, c.within)
			if err := errors.Join(os.MkdirAll(filepath.Dir(whole), 0o755), os.WriteFile(whole, nil, 0o644)); err != nil {
				t.Fatal(err)
			}
			if out, said, err := run(c.asks...); err != nil || out != final+"\n" || said != "" {
				t.Errorf("made before: %q %q %v, want %q", out, said, err, final)
			}
		})
	}
}
