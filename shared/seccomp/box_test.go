package seccomp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/rig"
)

// proberEnv makes the test binary the prober that runs in the box.
const proberEnv = "SECCOMP_TEST_PROBER"

func TestMain(m *testing.M) {
	if os.Getenv(proberEnv) != "" {
		probe()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const bad = ^uintptr(0)

// probes are calls with arguments that do nothing when the call is let
// through, so that a missing filter shows and hurts nobody.
var probes = []struct {
	name            string
	nr              uintptr
	args            [3]uintptr
	engine, browser syscall.Errno // with the filter
	bare            syscall.Errno // without it; 0 = success
}{
	{"mount", unix.SYS_MOUNT, [3]uintptr{bad, bad, bad}, unix.EPERM, unix.EPERM, unix.EFAULT},
	{"keyctl", unix.SYS_KEYCTL, [3]uintptr{bad}, unix.EPERM, unix.EPERM, unix.EOPNOTSUPP},
	{"setns", unix.SYS_SETNS, [3]uintptr{bad}, unix.EPERM, unix.EPERM, unix.EBADF},
	{"open_tree", unix.SYS_OPEN_TREE, [3]uintptr{bad, bad}, unix.ENOSYS, unix.ENOSYS, unix.EFAULT},
	{"clone3", unix.SYS_CLONE3, [3]uintptr{}, unix.ENOSYS, unix.ENOSYS, unix.EINVAL},
	{"io_uring_setup", unix.SYS_IO_URING_SETUP, [3]uintptr{1}, unix.ENOSYS, unix.ENOSYS, unix.EFAULT},
	{"TIOCSTI", unix.SYS_IOCTL, [3]uintptr{bad, unix.TIOCSTI}, unix.EPERM, unix.EPERM, unix.EBADF},
	{"TIOCSTI high bit", unix.SYS_IOCTL, [3]uintptr{bad, 1<<32 | unix.TIOCSTI}, unix.EPERM, unix.EPERM, unix.EBADF},
	{"TIOCLINUX", unix.SYS_IOCTL, [3]uintptr{bad, unix.TIOCLINUX}, unix.EPERM, unix.EPERM, unix.EBADF},
	{"TCGETS", unix.SYS_IOCTL, [3]uintptr{bad, unix.TCGETS}, unix.EBADF, unix.EBADF, unix.EBADF},
	{"socket unix, bad type", unix.SYS_SOCKET, [3]uintptr{unix.AF_UNIX, 99}, unix.EINVAL, unix.EINVAL, unix.EINVAL},
	{"socket vsock, bad type", unix.SYS_SOCKET, [3]uintptr{unix.AF_VSOCK, 99}, unix.EAFNOSUPPORT, unix.EAFNOSUPPORT, unix.EINVAL},
	{"socket vsock, high bit", unix.SYS_SOCKET, [3]uintptr{1<<32 | unix.AF_VSOCK, 99}, unix.EAFNOSUPPORT, unix.EAFNOSUPPORT, unix.EINVAL},
	{"netlink route", unix.SYS_SOCKET, [3]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, 0, 0, 0},
	{"netlink generic", unix.SYS_SOCKET, [3]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC}, unix.EAFNOSUPPORT, unix.EAFNOSUPPORT, 0},
	// A process with threads cannot leave its user namespace: EINVAL says that
	// the kernel itself was asked.
	{"unshare user", unix.SYS_UNSHARE, [3]uintptr{unix.CLONE_NEWUSER}, unix.EPERM, unix.EINVAL, unix.EINVAL},
	{"personality", unix.SYS_PERSONALITY, [3]uintptr{0xffffffff}, 0, 0, 0},
	{"call above the table", 1 << 20, [3]uintptr{}, unix.ENOSYS, unix.ENOSYS, unix.ENOSYS},
}

func probe() {
	for _, p := range probes {
		_, _, errno := unix.RawSyscall(p.nr, p.args[0], p.args[1], p.args[2])
		fmt.Printf("%s=%d\n", p.name, int(errno))
	}
}

func TestFilterInARealBox(t *testing.T) {
	self := copyTo(t, "prober", selfBytes(t))
	arch, err := Native()
	if err != nil {
		rig.Missing(t, "%v", err)
	}
	for _, box := range []struct {
		name   string
		filter []byte
	}{
		{"engine", Assemble(Engine, arch)},
		{"browser", Assemble(Browser, arch)},
		{"no filter", nil},
	} {
		out, err := inBox(t, box.filter, self)
		if err != nil {
			t.Fatalf("%s: %v\n%s", box.name, err, out)
		}
		for _, p := range probes {
			want := map[string]syscall.Errno{"engine": p.engine, "browser": p.browser, "no filter": p.bare}[box.name]
			if line := fmt.Sprintf("%s=%d\n", p.name, int(want)); !strings.Contains(out, line) {
				t.Errorf("%s: no line %q in\n%s", box.name, line, out)
			}
		}
	}
}

// TestForeignModeIsKilledInARealBox runs programs of a few instructions that
// make one call of i386 or of x32 and end with status 7 if they live.
func TestForeignModeIsKilledInARealBox(t *testing.T) {
	if arch, _ := Native(); arch != AMD64 {
		t.Skip("int 0x80 and x32 exist on x86-64 only")
	}
	code := map[string][]byte{
		"i386 getpid": {0xb8, 20, 0, 0, 0, 0xcd, 0x80},       // mov eax,20; int 0x80
		"x32 getpid":  {0xb8, 39, 0, 0, 0x40, 0x0f, 0x05},    // mov eax,x32|39; syscall
		"own getpid":  {0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0x90}, // mov eax,39; syscall
	}
	exit := []byte{0xbf, 7, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05} // _exit(7)
	for _, name := range slices.Sorted(maps.Keys(code)) {
		program := copyTo(t, strings.ReplaceAll(name, " ", "-"), elf(append(code[name], exit...)))
		for _, filter := range [][]byte{nil, Assemble(Engine, AMD64)} {
			want := 7
			if filter != nil && name != "own getpid" {
				want = 128 + int(unix.SIGSYS)
			}
			out, err := inBox(t, filter, program)
			status := -1
			if exit, ok := err.(*exec.ExitError); ok {
				status = exit.ExitCode()
			}
			if status != want {
				t.Errorf("%s, filter %v: status %d, want %d (%v)\n%s", name, filter != nil, status, want, err, out)
			}
		}
	}
}

// elf wraps code as the smallest static program.
func elf(code []byte) []byte {
	const base, head = 0x400000, 64 + 56
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	size := uint64(head + len(code))
	for _, field := range []any{
		uint16(2), uint16(62), uint32(1), uint64(base + head), uint64(64), uint64(0), uint32(0),
		uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000),
	} {
		binary.Write(&b, binary.LittleEndian, field)
	}
	b.Write(code)
	return b.Bytes()
}

func selfBytes(t *testing.T) []byte {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// copyTo puts a program where the user of the box can reach it: the folders
// that go test builds in and gives out are closed to others.
func copyTo(t *testing.T, name string, program []byte) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// inBox runs a program in a bubblewrap box as an ordinary user, with the
// filter on an inherited descriptor, and gives its output.
func inBox(t *testing.T, filter []byte, program string) (string, error) {
	t.Helper()
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		rig.Missing(t, "%v", err)
	}
	argv := []string{"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all",
		"--die-with-parent", "--setenv", proberEnv, "1"}
	cmd := exec.Command(bwrap)
	if filter != nil {
		argv = append(argv, "--seccomp", "3")
		cmd.ExtraFiles = []*os.File{memfd(t, filter)}
	}
	cmd.Args = append(append([]string{bwrap}, argv...), "--", program)
	cmd.Env = []string{}
	cmd.SysProcAttr = rig.Ordinary(t)
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "bwrap:") {
		rig.Missing(t, "no box here: %s", out)
	}
	return string(out), err
}

func memfd(t *testing.T, content []byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("seccomp", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "seccomp")
	t.Cleanup(func() { file.Close() })
	if _, err := file.Write(content); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	return file
}
