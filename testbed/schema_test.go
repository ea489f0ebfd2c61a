package testbed_test

import (
	"os/exec"
	"testing"
)

// The tests of testbed/schema are in a module of their own, which ./... leaves
// out.
func TestSchemas(t *testing.T) {
	cmd := exec.Command("go", "test", "-count=1", "./...")
	cmd.Dir = "schema"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
