package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// SECURITY.md lists every check that there is, and no other.
func TestSecurityListsTheChecks(t *testing.T) {
	var b strings.Builder
	b.WriteString("| check | profile | layer | tries | expects | broken by |\n|---|---|---|---|---|---|\n")
	for _, c := range table() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", c.ID, c.Profile, c.Layer, c.Tries, c.Expect, strings.Join(c.BrokenBy, ", "))
	}
	rig.Section(t, "SECURITY.md", "checks", b.String())
}
