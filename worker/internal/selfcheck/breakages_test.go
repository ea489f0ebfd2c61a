package selfcheck

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// breakage is a slip of somebody's hand that takes a protection away, and that
// no mutation names. The compiler reads the edited files in place of the real
// ones.
type breakage struct {
	what   string
	caught string // a check that has to fail
	edits  []rig.Edit
}

// The product with a breakage in it does not pass its own self-check. The
// probe is built of the same sources: what it believes must not come from the
// place that is broken.
func TestEveryBreakageIsCaught(t *testing.T) {
	all := slices.Concat(ofBoxes, ofGates)
	if len(all) < 20 {
		t.Errorf("only %d breakages", len(all))
	}
	for _, b := range all {
		t.Run(b.what, func(t *testing.T) {
			r, code := checked(t, broken(t, b.edits), rig.Ordinary(t), "--profile", "full")
			if code != 1 || !slices.Contains(r.Failed, b.caught) {
				t.Errorf("exit %d, failed %v, want %s among them; %v", code, r.Failed, b.caught, r.Warnings)
			}
			t.Logf("caught by %s", strings.Join(r.Failed, " "))
		})
	}
}

// broken is a folder of the programs, built of edited sources.
func broken(t *testing.T, edits []rig.Edit) string {
	t.Helper()
	dir := openFolder(t)
	if err := rig.CompileOver(dir, rig.Overlay(t, rig.Root(), edits), testBuild); err != nil {
		t.Fatal(err)
	}
	return dir
}

// openFolder is one that every user can read.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "selfcheck")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
