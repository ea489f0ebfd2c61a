package fresh

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

func TestMain(m *testing.M) {
	code := m.Run()
	rig.Remove()
	os.Exit(code)
}

// Debian's two that are tried: each has a bubblewrap, a dpkg and a systemd of
// its own age.
var suites = []string{"bookworm", "trixie"}

// machine is a fresh root file system that remembers what is done in it.
type machine struct {
	dir   string // upper, work, root, compiled, var-tmp
	lower string
}

// newMachine gives a machine on which nothing is installed, or what layers
// brought: the last lies on top.
func newMachine(t *testing.T, suite string, layers ...string) *machine {
	t.Helper()
	var missing []string
	for _, tool := range []string{"unshare", "mmdebstrap", "pivot_root", "git", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	if len(missing) > 0 {
		rig.Missing(t, "missing (testbed/setup.sh test installs it): %v", missing)
	}
	// Not /tmp, which is often a tmpfs, and a machine is written to.
	dir, err := os.MkdirTemp("/var/tmp", "botbox-fresh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &machine{dir: dir, lower: tree(t, suite)}
	for _, layer := range layers {
		m.lower = layer + ":" + m.lower
	}
	for _, name := range []string{"upper/srv", "work", "root", "var-tmp", "compiled/upper", "compiled/work"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return m
}

// tree unpacks a suite's root file system beside its tar, once.
func tree(t *testing.T, suite string) string {
	t.Helper()
	script := exec.Command("/bin/sh", filepath.Join(rig.Root(), "testbed/image/make.sh"), suite)
	script.Stderr = os.Stderr
	out, err := script.Output()
	if err != nil {
		t.Fatalf("make.sh %s: %v", suite, err)
	}
	tar := strings.TrimSpace(string(out))
	return kept(t, strings.TrimSuffix(tar, ".tar"), func(dir string) {
		command(t, "tar", "-C", dir, "--xattrs", "--numeric-owner", "-xpf", tar)
	})
}

// kept gives a folder of the cache, and fills it aside and renames it if it is
// not there: a broken one never looks finished.
func kept(t *testing.T, final string, fill func(dir string)) string {
	t.Helper()
	if _, err := os.Stat(final); err == nil {
		return final
	}
	aside, err := os.MkdirTemp(filepath.Dir(final), ".new.")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(aside)
	if err := os.Chmod(aside, 0o755); err != nil {
		t.Fatal(err)
	}
	fill(aside)
	if err := os.Rename(aside, final); err != nil {
		t.Fatal(err)
	}
	return final
}

// layer keeps what is written when fill works on a suite's fresh machine.
func layer(t *testing.T, suite, name string, fill func(m *machine)) string {
	t.Helper()
	base := tree(t, suite)
	return kept(t, base+"-"+name, func(dir string) {
		m := newMachine(t, suite)
		fill(m)
		command(t, "sh", "-c", "mv "+m.dir+"/upper/* "+dir)
	})
}

// key is a part of a cached folder's name that changes when a file does.
func key(t *testing.T, files ...string) string {
	t.Helper()
	sum := sha256.New()
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(rig.Root(), name))
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:12]
}

func command(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
	return strings.TrimSpace(string(out))
}

// run runs a shell script in the machine. What it left running ends with it.
func (m *machine) run(t *testing.T, within time.Duration, script string) rig.Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
		"/bin/sh", "enter.sh", m.dir, m.lower, "/bin/sh", "-c", script)
	cmd.Env = append(os.Environ(), "GOROOT="+goEnv(t, "GOROOT"), "GOMODCACHE="+goEnv(t, "GOMODCACHE"), "GOCACHE="+goEnv(t, "GOCACHE"))
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	return rig.Output{Stdout: out.String(), Stderr: errs.String(), Code: rig.Code(err)}
}

// must is run of what has to succeed.
func (m *machine) must(t *testing.T, within time.Duration, script string) rig.Output {
	t.Helper()
	got := m.run(t, within, script)
	if got.Code != 0 {
		t.Fatalf("%s: %d\n%s\n%s", script, got.Code, got.Stdout, got.Stderr)
	}
	return got
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	return command(t, "go", "env", name)
}

// clone puts a clean clone of this checkout's last commit into the machine.
func (m *machine) clone(t *testing.T, at string) {
	t.Helper()
	for _, module := range []string{".", "testbed/schema"} { // what a newcomer would fetch is lent
		command(t, "go", "-C", filepath.Join(rig.Root(), module), "mod", "download")
	}
	command(t, "git", "-c", "safe.directory=*", "clone", "--quiet", "file://"+rig.Root(), filepath.Join(m.dir, "upper", at))
}

// install is for what a test takes for granted before it begins.
func (m *machine) install(t *testing.T, packages ...string) {
	t.Helper()
	m.must(t, 10*time.Minute, "export DEBIAN_FRONTEND=noninteractive && apt-get update -qq && apt-get install -y -qq --no-install-recommends "+
		strings.Join(packages, " ")+" && apt-get clean")
}
