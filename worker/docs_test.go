package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/zones"
	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/cli"
)

func TestReadmeListsTheReasons(t *testing.T) {
	var b strings.Builder
	b.WriteString("| reason | exit | what it means | what to do |\n|---|---|---|---|\n")
	for _, row := range reason.All() {
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s |\n", row.Code, row.Exit, row.Means, row.Hint)
	}
	rig.Section(t, "README.md", "reasons", b.String())
}

func TestReadmeListsTheSettings(t *testing.T) {
	var b strings.Builder
	b.WriteString("| variable | default | meaning |\n|---|---|---|\n")
	kind := reflect.TypeFor[cli.Settings]()
	for i := range kind.NumField() {
		tag := kind.Field(i).Tag
		name, means := tag.Get("envconfig"), tag.Get("means")
		if means == "" {
			t.Errorf("%s has no meaning", name)
		}
		fallback := tag.Get("default")
		if fallback != "" {
			fallback = "`" + fallback + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, fallback, means)
	}
	rig.Section(t, "README.md", "settings", b.String())
}

func TestReadmeListsTheZones(t *testing.T) {
	var b strings.Builder
	b.WriteString("| folder | zone | runs as | builds | may be trusted with |\n|---|---|---|---|---|\n")
	for _, z := range zones.Zones() {
		fmt.Fprintf(&b, "| `%s/` | %s | %s | %s | %s |\n", z.Folder, z.Name, z.RunsAs, z.Builds, z.Trust)
	}
	rig.Section(t, "README.md", "zones", b.String())
}
