package box

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// known are those of bubblewrap 0.8.0's options that a box is made of, two of
// them as Debian brought them back from 0.10. Debian 12 has nothing newer, and
// an option that it does not know ends every box (codex#15260).
const known = `--die-with-parent --new-session --disable-userns --hostname --chdir --clearenv --setenv --seccomp --json-status-fd
	--unshare-user --unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup
	--bind-fd --ro-bind-fd --ro-bind-data --file --perms --size --tmpfs --proc --dev --symlink --remount-ro`

func TestOptionsAreOldEnough(t *testing.T) {
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	seen := map[string]bool{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			option, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if !strings.HasPrefix(option, "--") || option == "--" || option == "--args" {
				continue
			}
			seen[option] = true
			if !slices.Contains(strings.Fields(known), option) {
				t.Errorf("%s: %s is no option that we may rely on", name, option)
			}
		}
	}
	if len(seen) < 15 {
		t.Errorf("control: only %v are seen", seen)
	}
}
