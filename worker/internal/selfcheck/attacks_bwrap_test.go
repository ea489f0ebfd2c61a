package selfcheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// checkedBy is a self-check with the bubblewrap of a folder.
func checkedBy(t *testing.T, dir string) outcome {
	t.Helper()
	before := litter(t)
	cmd := botbox(t, built(t), rig.Ordinary(t), "check", "--json", "--profile", "full")
	cmd.Env = []string{"PATH=" + dir + ":/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent"}
	o := outcomeOf(t, cmd)
	leavesNothing(t, before)
	return o
}

// A bubblewrap that passes over an option without a word makes a box that lacks
// something. Either no box comes of it, or a check misses what it lacks.
func TestABubblewrapThatPassesOver(t *testing.T) {
	real, err := exec.LookPath("bwrap")
	if err != nil {
		rig.Missing(t, "%v", err)
	}
	for _, c := range []struct {
		option  string
		words   int
		instead string
		caught  string // a check, or what is said where there is no box
	}{
		{"--no-such-option", 0, "", ""}, // the control
		{"--unshare-pid", 0, "", "P1"},
		{"--unshare-net", 0, "", "reason: "}, // the harness gate's port is the server's
		{"--unshare-ipc", 0, "", "P07"},
		{"--unshare-cgroup", 0, "", "P07"},
		{"--unshare-uts", 0, "", "reason: "}, // --hostname then has nothing to name
		{"--unshare-user", 0, "", "reason: "},
		{"--seccomp", 1, "", "S01"},
		{"--size", 1, "", "L02"},
		{"--remount-ro", 1, "", "L02"},
		{"--ro-bind-fd", 2, "--bind-fd", "W1"},
		{"--ro-bind-fd", 2, "", "reason: "},
		{"--setenv", 2, "", "E1"},
		{"--dev", 1, "", "reason: "},
		{"--proc", 1, "", "P1"},
		{"--json-status-fd", 1, "", "reason: "},
	} {
		t.Run(c.option+c.instead, func(t *testing.T) {
			dir := openFolder(t)
			link := "-X main.real=" + real + " -X main.option=" + c.option + " -X main.words=" + strconv.Itoa(c.words) + " -X main.instead=" + c.instead
			if err := compile(filepath.Join(dir, "bwrap"), "./testdata/bwrap", link); err != nil {
				t.Fatal(err)
			}
			o := checkedBy(t, dir)
			if c.caught == "" {
				if o.code != 0 {
					t.Errorf("control: exit %d, failed %v: %s", o.code, o.Failed, o.said)
				}
				return
			}
			if o.code == 0 || !slices.Contains(append(o.Failed, "reason: "), c.caught) || len(o.Results) == 0 != (c.caught == "reason: ") {
				t.Errorf("exit %d, failed %v: %s", o.code, o.Failed, o.said)
			}
		})
	}
}

// One that is too old, or says what it cannot do, is named.
func TestABubblewrapThatIsTooOld(t *testing.T) {
	real, err := exec.LookPath("bwrap")
	if err != nil {
		rig.Missing(t, "%v", err)
	}
	for name, c := range map[string]struct{ script, says string }{
		"the control":       {`exec env -i ` + real + ` "$@"`, ""},
		"of 0.7":            {`[ "$1" = --version ] && { echo "bubblewrap 0.7.0"; exit; }; exec env -i ` + real + ` "$@"`, "reason: bwrap-too-old"},
		"without --bind-fd": {`[ "$1" = --help ] && { ` + real + ` --help 2>&1 | grep -v -e -bind-fd; exit; }; exec env -i ` + real + ` "$@"`, "reason: bwrap-too-old"},
		"that says it all and knows no --bind-fd": {`case $1 in --version|--help) exec env -i ` + real + ` "$@";; esac
for w; do [ "$w" = --bind-fd ] && { echo "bwrap: Unknown option --bind-fd" >&2; exit 1; }; done
[ "$1" = --args ] && tr '\0' '\n' </proc/self/fd/$2 | grep -q -e '^--bind-fd' && { echo "bwrap: Unknown option --bind-fd" >&2; exit 1; }
exec env -i ` + real + ` "$@"`, "reason: "},
		"that ends at once with 0": {`case $1 in --version|--help) exec env -i ` + real + ` "$@";; esac; exit 0`, "reason: "},
		"that runs without a box":  {`case $1 in --version|--help) exec env -i ` + real + ` "$@";; esac; while [ "$1" != -- ]; do shift; done; shift; exec "$@"`, "reason: "},
		"that is not a program":    {"\x00", "reason: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := openFolder(t)
			if err := os.WriteFile(filepath.Join(dir, "bwrap"), []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			if o := checkedBy(t, dir); (o.code == 0) != (c.says == "") || !strings.Contains(o.said, c.says) || c.says != "" && len(o.Results) > 0 {
				t.Errorf("exit %d, failed %v: %s", o.code, o.Failed, o.said)
			}
		})
	}
}
