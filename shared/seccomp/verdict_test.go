package seccomp

import (
	"flag"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "rewrite the golden listings")

var arches = []Arch{AMD64, ARM64}
var kinds = []Kind{Engine, Browser}

func kindName(k Kind) string { return map[Kind]string{Engine: "engine", Browser: "browser"}[k] }

func TestGoldenListing(t *testing.T) {
	for _, arch := range arches {
		for _, kind := range kinds {
			file := "testdata/" + kindName(kind) + "-" + string(arch) + ".txt"
			got := listing(Assemble(kind, arch))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs; go test -update shows the change:\n%s", file, got)
			}
		}
	}
}

// TestEveryNumberByTheTable asks every number up to well above the ceiling,
// with arguments for which no argument rule refuses.
func TestEveryNumberByTheTable(t *testing.T) {
	for _, arch := range arches {
		want := map[int]string{}
		for _, row := range table {
			if n := row.Number(arch); n != None && row.When.Test == Always {
				want[n] = unix.ErrnoName(row.Errno)
			}
		}
		for _, kind := range kinds {
			prog := Assemble(kind, arch)
			for n := 0; n <= Ceiling+600; n++ {
				verdict, ok := want[n]
				if !ok {
					verdict = "allow"
				}
				if n > Ceiling {
					verdict = "ENOSYS"
				}
				c := call{uint32(n), auditArch(arch), harmless(n, arch)}
				if got := action(run(t, prog, c)); got != verdict {
					t.Errorf("%s %s: call %d gives %s, want %s", arch, kindName(kind), n, got, verdict)
				}
			}
		}
	}
}

// harmless gives arguments that no rule refuses: a unix socket for the calls
// that make sockets, zeros for all others.
func harmless(n int, arch Arch) (args [6]uint64) {
	for _, name := range []string{"socket", "socketpair"} {
		if Lookup(name)[0].Number(arch) == n {
			args[0] = unix.AF_UNIX
		}
	}
	return args
}

func TestForeignCallsKill(t *testing.T) {
	foreign := []uint32{0, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_X86_64,
		unix.AUDIT_ARCH_AARCH64, unix.AUDIT_ARCH_S390X}
	for _, arch := range arches {
		for _, kind := range kinds {
			prog := Assemble(kind, arch)
			for _, other := range foreign {
				want := "kill"
				if other == auditArch(arch) {
					want = "allow"
				}
				if got := action(run(t, prog, call{nr: 0, arch: other})); got != want {
					t.Errorf("%s: a call of architecture %#x gives %s, want %s", arch, other, got, want)
				}
			}
			x32 := map[Arch]string{AMD64: "kill", ARM64: "ENOSYS"}[arch]
			for _, n := range []uint32{x32Bit, x32Bit | 39, x32Bit | 512, 0xffffffff} {
				if got := action(run(t, prog, call{nr: n, arch: auditArch(arch)})); got != x32 {
					t.Errorf("%s: call %#x gives %s, want %s", arch, n, got, x32)
				}
			}
		}
	}
}

func TestArgumentRules(t *testing.T) {
	const newUser, newNS = unix.CLONE_NEWUSER, unix.CLONE_NEWNS
	cases := []struct {
		name            string
		args            [6]uint64
		engine, browser string
	}{
		{"ioctl", [6]uint64{0, unix.TIOCSTI}, "EPERM", "EPERM"},
		{"ioctl", [6]uint64{0, unix.TIOCLINUX}, "EPERM", "EPERM"},
		{"ioctl", [6]uint64{0, unix.TCGETS}, "allow", "allow"},
		{"ioctl", [6]uint64{unix.TIOCSTI, unix.TIOCGWINSZ}, "allow", "allow"},
		{"socket", [6]uint64{unix.AF_INET, 1, 6}, "allow", "allow"},
		{"socket", [6]uint64{unix.AF_INET6, 1, 6}, "allow", "allow"},
		{"socket", [6]uint64{unix.AF_UNSPEC}, "EAFNOSUPPORT", "EAFNOSUPPORT"},
		{"socket", [6]uint64{unix.AF_PACKET}, "EAFNOSUPPORT", "EAFNOSUPPORT"},
		{"socket", [6]uint64{unix.AF_ALG}, "EAFNOSUPPORT", "EAFNOSUPPORT"},
		{"socket", [6]uint64{unix.AF_VSOCK}, "EAFNOSUPPORT", "EAFNOSUPPORT"},
		{"socket", [6]uint64{unix.AF_NETLINK, 3, unix.NETLINK_ROUTE}, "allow", "allow"},
		{"socket", [6]uint64{unix.AF_NETLINK, 3, unix.NETLINK_NETFILTER}, "EAFNOSUPPORT", "EAFNOSUPPORT"},
		{"socketpair", [6]uint64{unix.AF_UNIX}, "allow", "allow"},
		{"socketpair", [6]uint64{unix.AF_INET}, "EAFNOSUPPORT", "EAFNOSUPPORT"},
		{"clone", [6]uint64{uint64(unix.SIGCHLD)}, "allow", "allow"},
		{"clone", [6]uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, "allow", "allow"},
		{"clone", [6]uint64{unix.CLONE_NEWTIME}, "allow", "allow"}, // part of the exit signal
		{"clone", [6]uint64{newUser | uint64(unix.SIGCHLD)}, "EPERM", "allow"},
		{"clone", [6]uint64{newUser | unix.CLONE_NEWPID | unix.CLONE_NEWNET}, "EPERM", "allow"},
		{"clone", [6]uint64{newUser | newNS}, "EPERM", "EPERM"},
		{"clone", [6]uint64{unix.CLONE_NEWCGROUP}, "EPERM", "EPERM"},
		{"unshare", [6]uint64{newUser}, "EPERM", "allow"},
		{"unshare", [6]uint64{newUser | newNS}, "EPERM", "EPERM"},
		{"unshare", [6]uint64{unix.CLONE_NEWTIME}, "EPERM", "EPERM"},
		{"unshare", [6]uint64{unix.CLONE_FS | unix.CLONE_FILES}, "allow", "allow"},
		{"personality", [6]uint64{0xffffffff}, "allow", "allow"},
		{"personality", [6]uint64{0x40000}, "allow", "allow"},
		{"personality", [6]uint64{0x400000}, "EPERM", "EPERM"}, // READ_IMPLIES_EXEC
	}
	for _, c := range cases {
		for _, arch := range arches {
			for _, kind := range kinds {
				want := map[Kind]string{Engine: c.engine, Browser: c.browser}[kind]
				data := call{uint32(Lookup(c.name)[0].Number(arch)), auditArch(arch), c.args}
				if got := action(run(t, Assemble(kind, arch), data)); got != want {
					t.Errorf("%s %s: %s(%#x) gives %s, want %s", arch, kindName(kind), c.name, c.args, got, want)
				}
			}
		}
	}
}

// FuzzHighHalves holds the rule that only low words count: any high word on
// any argument leaves the verdict as it is.
func FuzzHighHalves(f *testing.F) {
	f.Add(uint16(16), uint64(0), uint64(unix.TIOCSTI), uint64(0), uint32(1), uint32(1<<31), uint32(7))
	f.Add(uint16(41), uint64(unix.AF_VSOCK), uint64(1), uint64(0), uint32(1), uint32(0), uint32(0))
	f.Add(uint16(41), uint64(unix.AF_NETLINK), uint64(3), uint64(12), uint32(9), uint32(8), uint32(7))
	f.Add(uint16(272), uint64(unix.CLONE_NEWUSER), uint64(0), uint64(0), uint32(1<<31), uint32(0), uint32(0))
	progs := map[Arch]map[Kind][]byte{}
	for _, arch := range arches {
		progs[arch] = map[Kind][]byte{Engine: Assemble(Engine, arch), Browser: Assemble(Browser, arch)}
	}
	f.Fuzz(func(t *testing.T, nr uint16, a0, a1, a2 uint64, h0, h1, h2 uint32) {
		for _, arch := range arches {
			for _, kind := range kinds {
				low := call{uint32(nr), auditArch(arch), [6]uint64{a0, a1, a2}}
				high := low
				for i, h := range []uint32{h0, h1, h2} {
					high.args[i] ^= uint64(h) << 32
				}
				was, is := run(t, progs[arch][kind], low), run(t, progs[arch][kind], high)
				if was != is {
					t.Fatalf("%s %s: %+v gives %s, with high words %s", arch, kindName(kind), low, action(was), action(is))
				}
			}
		}
	})
}
