package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// The order of the page is the order of the boot.
func TestReadmeListsTheBootSteps(t *testing.T) {
	var b strings.Builder
	for i, s := range append(append([]step{}, beforeExec...), afterExec...) {
		fmt.Fprintf(&b, "%d. `%s`: %s\n", i+1, s.name, s.why)
	}
	rig.Section(t, "README.md", "steps", b.String())
}
