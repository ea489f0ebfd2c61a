package seccomp

import (
	"bytes"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// The self-check's filters differ from the real one in what is asked of them
// and in nothing else.
func TestAssembleOf(t *testing.T) {
	for _, arch := range arches {
		for _, kind := range kinds {
			whole := Assemble(kind, arch)
			if !bytes.Equal(AssembleOf(All(), kind, arch, 0), whole) {
				t.Errorf("%s on %s: all rows are not the filter", kindName(kind), arch)
			}
			row := Lookup("keyctl")[0]
			without := slices.DeleteFunc(All(), func(r Row) bool { return r.Name == "keyctl" })
			less := AssembleOf(without, kind, arch, 0)
			for n := 0; n <= Ceiling+10; n++ {
				c := call{uint32(n), auditArch(arch), harmless(n, arch)}
				want := action(run(t, whole, c))
				if n == row.Number(arch) {
					want = "allow"
				}
				if got := action(run(t, less, c)); got != want {
					t.Errorf("%s on %s: call %d: %s, want %s", kindName(kind), arch, n, got, want)
				}
			}
		}
	}
}

func TestModesAreOpenedOneByOne(t *testing.T) {
	foreign := call{20, unix.AUDIT_ARCH_I386, [6]uint64{}}
	x32 := call{x32Bit | 39, unix.AUDIT_ARCH_X86_64, [6]uint64{}}
	for open, want := range map[Modes][2]string{
		0: {"kill", "kill"}, Foreign: {"allow", "kill"}, X32: {"kill", "ENOSYS"}, Foreign | X32: {"allow", "ENOSYS"},
	} {
		prog := AssembleOf(All(), Engine, AMD64, open)
		if got := [2]string{action(run(t, prog, foreign)), action(run(t, prog, x32))}; got != want {
			t.Errorf("%b: %v, want %v", open, got, want)
		}
	}
}
