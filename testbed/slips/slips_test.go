package slips

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// slip takes a protection away in a way that no mutation names.
type slip struct {
	what   string
	caught string // a check that has to fail
	edits  []rig.Edit
}

// The product with a slip in it does not pass its own self-check. The probe is
// built of the same sources: what it believes must not come from the place that
// is broken.
func TestEveryBreakageIsCaught(t *testing.T) {
	all := slices.Concat(ofBoxes, ofGates)
	if len(all) < 20 {
		t.Errorf("only %d slips", len(all))
	}
	for _, s := range all {
		t.Run(s.what, func(t *testing.T) {
			failed, out := checked(t, s.edits)
			if out.Code != 1 || !slices.Contains(failed, s.caught) {
				t.Errorf("failed %v, want %s among them; exit %d: %s", failed, s.caught, out.Code, out.Stderr)
			}
			t.Logf("caught by %s", strings.Join(failed, " "))
		})
	}
}

// checked builds the programs of edited sources, the probe among them, and
// gives the checks that fail.
func checked(t *testing.T, edits []rig.Edit) (failed []string, out rig.Output) {
	t.Helper()
	dir := rig.Dir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := rig.CompileOver(dir, rig.Overlay(t, rig.Root(), edits), rig.Build); err != nil {
		t.Fatal(err)
	}
	out = rig.Run(t, rig.Command(t, "/", rig.Env(t, "/nonexistent"), filepath.Join(dir, "botbox"), "check", "--json", "--profile", "full"))
	var r struct{ Failed []string }
	if out.Stdout != "" {
		if err := json.Unmarshal([]byte(out.Stdout), &r); err != nil {
			t.Fatalf("%v in %q", err, out.Stdout)
		}
	}
	return r.Failed, out
}

// Without an edit the same build passes: what fails above fails by its slip.
func TestWithoutASlipItPasses(t *testing.T) {
	if failed, out := checked(t, nil); out.Code != 0 || len(failed) > 0 {
		t.Errorf("failed %v, exit %d: %s", failed, out.Code, out.Stderr)
	}
}
