package seccomp

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

func TestTableIsTheAgreedSet(t *testing.T) {
	count := map[Group]int{}
	unconditional := map[Arch]int{}
	for _, row := range All() {
		count[row.Group]++
		if row.Reason == "" || row.Errno == 0 {
			t.Errorf("%s lacks a reason or an answer", row.Name)
		}
		if (row.Group == ByArgument) != (row.When.Test != Always) {
			t.Errorf("%s: group and condition contradict each other", row.Name)
		}
		if row.When.Test == AnyFlag && len(row.When.Values) != 1 {
			t.Errorf("%s: AnyFlag takes one value", row.Name)
		}
		for _, arch := range arches {
			if row.When.Test == Always && row.Number(arch) != None {
				unconditional[arch]++
			}
			if row.Number(arch) > Ceiling {
				t.Errorf("%s lies above the ceiling", row.Name)
			}
		}
	}
	want := map[Group]int{SeedCore: 25, NewMount: 8, MountList: 3, IOUring: 3, Clone3: 1, NoNeed: 19, Exotic: 13, ByArgument: 9}
	for group, n := range want {
		if count[group] != n {
			t.Errorf("group %q has %d rows, want %d", group, count[group], n)
		}
	}
	if unconditional[AMD64] != 72 || unconditional[ARM64] != 62 {
		t.Errorf("unconditional rows: %v, want 72 and 62", unconditional)
	}
	if len(SeedCalls()) != 34 {
		t.Errorf("%d seed calls", len(SeedCalls()))
	}
}

func TestNothingThatEnginesNeedIsInTheTable(t *testing.T) {
	for _, name := range []string{"chroot", "ptrace", "seccomp", "memfd_create", "pidfd_open", "execve", "sendto", "setsockopt"} {
		if len(Lookup(name)) != 0 {
			t.Errorf("%s is refused", name)
		}
	}
}

func TestUnknownCPUOrKindPanics(t *testing.T) {
	for _, f := range []func(){
		func() { Assemble(Engine, "mips") },
		func() { Assemble(0, AMD64) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		}()
	}
}

// TestNumbersAreTheKernels compares every number of both CPUs with the tables
// that x/sys generates of the kernel's own headers.
func TestNumbersAreTheKernels(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		rig.Missing(t, "go list: %v", err)
	}
	dir := filepath.Join(string(bytes.TrimSpace(out)), "unix")
	for _, arch := range arches {
		text, err := os.ReadFile(filepath.Join(dir, "zsysnum_linux_"+string(arch)+".go"))
		if err != nil {
			rig.Missing(t, "read the numbers: %v", err)
		}
		for _, row := range table {
			want := None
			re := regexp.MustCompile(`\bSYS_` + strings.ToUpper(row.Name) + `\s+= (\d+)`)
			if m := re.FindSubmatch(text); m != nil {
				fmt.Sscan(string(m[1]), &want)
			}
			if row.Number(arch) != want {
				t.Errorf("%s %s has number %d, the kernel's is %d", arch, row.Name, row.Number(arch), want)
			}
		}
	}
}
