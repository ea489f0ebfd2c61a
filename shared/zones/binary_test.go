package zones

import (
	"bytes"
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write deps.txt anew")

// present gives the programs whose main package is there.
func present(t *testing.T) []Binary {
	t.Helper()
	var list []Binary
	for _, b := range binaries {
		if _, err := os.Stat(filepath.Join(root, b.Folder, "main.go")); err == nil {
			list = append(list, b)
		}
	}
	return list
}

// linked lists what a program is built from.
func linked(t *testing.T, b Binary) []string {
	t.Helper()
	return strings.Fields(string(goTool(t, "list", "-deps", "./"+b.Folder)))
}

// golden leaves out what changes with the toolchain and that nobody can
// import: the standard library's internal and vendored packages.
func golden(deps []string) []string {
	return slices.Sorted(slices.Values(slices.DeleteFunc(slices.Clone(deps), func(path string) bool {
		first, _, _ := strings.Cut(path, "/")
		standard := !strings.Contains(first, ".")
		return standard && slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool {
			return part == "internal" || part == "vendor"
		})
	})))
}

func TestDeps(t *testing.T) {
	for _, b := range present(t) {
		t.Run(b.Name, func(t *testing.T) {
			deps := linked(t, b)
			if b.Packages > 0 && len(deps) > b.Packages {
				t.Errorf("%d packages, at most %d: %s", len(deps), b.Packages, b.Reason)
			}
			file := filepath.Join(root, b.Folder, "deps.txt")
			want := strings.Join(golden(deps), "\n") + "\n"
			if *update {
				if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v; write it with: go test ./shared/zones -run TestDeps -update", err)
			}
			if string(got) != want {
				t.Errorf("%s/deps.txt is not what is linked; go test ./shared/zones -run TestDeps -update, and look at the difference:\n%s",
					b.Folder, difference(strings.Fields(string(got)), golden(deps)))
			}
		})
	}
	in := []string{"internal/abi", "os", "vendor/golang.org/x/net/idna", "crypto/internal/boring", Module + "/worker/internal/box", "bytes"}
	if got := golden(in); !slices.Equal(got, []string{"bytes", Module + "/worker/internal/box", "os"}) {
		t.Errorf("golden list %q", got)
	}
}

func difference(have, want []string) string {
	var b strings.Builder
	for _, path := range have {
		if !slices.Contains(want, path) {
			fmt.Fprintf(&b, "- %s\n", path)
		}
	}
	for _, path := range want {
		if !slices.Contains(have, path) {
			fmt.Fprintf(&b, "+ %s\n", path)
		}
	}
	return b.String()
}

// checkELF gives the ways in which a program is not a static one whose memory
// is either writable or executable.
func checkELF(program []byte) []string {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return []string{err.Error()}
	}
	var faults []string
	for _, p := range f.Progs {
		switch {
		case p.Type == elf.PT_INTERP:
			faults = append(faults, "needs an interpreter: not static")
		case p.Type == elf.PT_DYNAMIC:
			faults = append(faults, "has a dynamic section: not static")
		case (p.Type == elf.PT_LOAD || p.Type == elf.PT_GNU_STACK) && p.Flags&elf.PF_W != 0 && p.Flags&elf.PF_X != 0:
			faults = append(faults, fmt.Sprintf("segment %v is writable and executable", p.Type))
		}
	}
	return faults
}

func TestBinaries(t *testing.T) {
	for _, b := range present(t) {
		t.Run(b.Name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), b.Name)
			goTool(t, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, "./"+b.Folder)
			program, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			report(t, checkELF(program))
			if n := int64(len(program)); b.Bytes > 0 && n > b.Bytes {
				t.Errorf("%d bytes, at most %d: %s", n, b.Bytes, b.Reason)
			}
		})
	}
}

func TestBinariesRefuses(t *testing.T) {
	// The smallest program that the loader would take: one header, one segment.
	program := func(kind elf.ProgType, flags elf.ProgFlag) []byte {
		b := make([]byte, 64+56)
		copy(b, "\x7fELF\x02\x01\x01")
		b[16], b[18], b[20] = byte(elf.ET_EXEC), byte(elf.EM_X86_64), 1
		b[32], b[52], b[54], b[56], b[58] = 64, 64, 56, 1, 64
		b[64], b[65], b[66], b[67] = byte(kind), byte(kind>>8), byte(kind>>16), byte(kind>>24)
		b[68] = byte(flags)
		return b
	}
	wantFaults(t, "text", checkELF(program(elf.PT_LOAD, elf.PF_R|elf.PF_X)))
	wantFaults(t, "data", checkELF(program(elf.PT_LOAD, elf.PF_R|elf.PF_W)))
	wantFaults(t, "both", checkELF(program(elf.PT_LOAD, elf.PF_R|elf.PF_W|elf.PF_X)), "writable and executable")
	wantFaults(t, "stack", checkELF(program(elf.PT_GNU_STACK, elf.PF_R|elf.PF_W|elf.PF_X)), "writable and executable")
	wantFaults(t, "interpreter", checkELF(program(elf.PT_INTERP, elf.PF_R)), "interpreter")
	wantFaults(t, "dynamic", checkELF(program(elf.PT_DYNAMIC, elf.PF_R)), "dynamic")
	wantFaults(t, "no ELF", checkELF(make([]byte, 128)), "bad magic")
}
