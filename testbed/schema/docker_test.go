package schema

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/moby/profiles/seccomp"
)

var update = flag.Bool("update", false, "write the files that are made of others")

// TestDocker: init/docker-seccomp.json is Docker's own default with one call
// more, for whoever has SYS_ADMIN: bubblewrap enters a box by pivot_root, and
// Docker's default has it for nobody.
func TestDocker(t *testing.T) {
	profile := seccomp.DefaultProfile()
	given := 0
	for _, rule := range profile.Syscalls {
		names, withAdmin := map[string]bool{}, rule.Includes != nil && len(rule.Includes.Caps) == 1 && rule.Includes.Caps[0] == "CAP_SYS_ADMIN"
		for _, name := range rule.Names {
			names[name] = true
		}
		if names["pivot_root"] {
			t.Fatal("Docker's default has pivot_root now; then the profile is not needed")
		}
		if withAdmin && names["unshare"] && names["mount"] {
			rule.Names = append(rule.Names, "pivot_root")
			given++
		}
	}
	if given != 1 {
		t.Fatalf("%d rules give unshare and mount to SYS_ADMIN", given)
	}
	want, err := json.MarshalIndent(profile, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "../../init/docker-seccomp.json", append(want, '\n'))
}

// golden wants a file to be what was made.
func golden(t *testing.T, file string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
		t.Errorf("%s is out of date; go test -update, in testbed/schema, writes it: %v", file, err)
	}
}
