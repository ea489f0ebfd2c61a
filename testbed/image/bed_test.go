package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/rig"
)

func TestMain(m *testing.M) {
	code := m.Run()
	theBed.remove()
	rig.Remove()
	os.Exit(code)
}

const (
	tag        = "localhost/botbox:test"
	debian     = "docker.io/library/debian:trixie-slim" // the names that the Dockerfile's short ones stand for
	golang     = "docker.io/library/golang:1.26-trixie"
	eachWithin = 4 * time.Minute
)

// bed is a storage of images and containers of this run's own.
type bed struct {
	once sync.Once
	err  error
	dir  string
}

var theBed bed

// ready builds the image once.
func ready(t *testing.T) *bed {
	t.Helper()
	var missing []string
	for _, tool := range []string{"podman", "buildah", "runc", "catatonit", "mmdebstrap", "unshare"} {
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
	rig.Programs(t) // fills the Go cache that the image is built with
	theBed.once.Do(func() { theBed.err = theBed.make() })
	if theBed.err != nil {
		t.Fatal(theBed.err)
	}
	return &theBed
}

func (b *bed) make() (err error) {
	script := exec.Command("/bin/sh", "make.sh", "slim")
	script.Stderr = os.Stderr
	base, err := script.Output()
	if err != nil {
		return fmt.Errorf("make.sh: %w", err)
	}
	// Not /tmp: containers are mounted there with overlayfs.
	if b.dir, err = os.MkdirTemp("/var/tmp", "botbox-image"); err != nil {
		return err
	}
	// A pod's user has to get to what is mounted for it.
	if err := os.Chmod(b.dir, 0o711); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"storage.conf":      fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n", b.dir+"/graph", b.dir+"/run"),
		"golang/Dockerfile": "FROM " + debian + "\nENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
	} {
		path := filepath.Join(b.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	if _, err := b.do(b.podman("import", "--quiet", strings.TrimSpace(string(base)), debian)); err != nil {
		return err
	}
	if _, err := b.do(b.build(golang, filepath.Join(b.dir, "golang/Dockerfile"), filepath.Join(b.dir, "golang"))); err != nil {
		return err
	}
	_, err = b.do(b.build(tag, filepath.Join(rig.Root(), "Dockerfile"), rig.Root()))
	return err
}

// build runs a Dockerfile where there is no network: buildah knows --network none
// only without chroot, which is the isolation that works everywhere. Go,
// the modules and what it compiled before come from this machine.
func (b *bed) build(name, file, context string, more ...string) *exec.Cmd {
	argv := append(append(b.builder(), "-t", name, "-f", file), more...)
	return b.command("unshare", append(argv, context)...)
}

func (b *bed) builder() []string {
	env := func(name string) string {
		out, _ := exec.Command("go", "env", name).Output()
		return strings.TrimSpace(string(out))
	}
	return append([]string{"-n", "buildah", "bud", "--isolation", "chroot", "--layers", "--pull-never",
		"--build-arg", "BUILD=" + rig.Build, "--build-arg", "GOPROXY=file:///modules",
		"-v", env("GOROOT") + ":/usr/local/go:ro", "-v", env("GOMODCACHE") + "/cache/download:/modules:ro",
		"-v", env("GOCACHE") + ":/root/.cache/go-build"}, limits...)
}

func (b *bed) podman(args ...string) *exec.Cmd {
	return b.command("podman", append([]string{"--runtime", "runc", "--cgroup-manager", "cgroupfs", "--tmpdir", b.dir + "/libpod"}, args...)...)
}

func (b *bed) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), eachWithin)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { cancel(); return cmd.Process.Kill() }
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "CONTAINERS_STORAGE_CONF="+b.dir+"/storage.conf", "TMPDIR="+b.dir,
		"PODMAN_IGNORE_CGROUPSV1_WARNING=1") // it would stand in every answer
	return cmd
}

// do wants a command to succeed, and gives what it said.
func (b *bed) do(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func (b *bed) must(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := b.do(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// remove leaves neither container nor mount nor file.
func (b *bed) remove() {
	if b.dir == "" {
		return
	}
	if _, err := b.do(b.podman("rm", "--all", "--force", "--time", "0", "--volumes")); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = unix.Unmount(b.dir+"/graph/overlay", unix.MNT_DETACH)
	if err := os.RemoveAll(b.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// limits are there because of this kind of machine, whose root may raise none,
// as podman would from its version 5 on.
var limits = []string{"--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"}

// Flags that a container is run with here whatever the row: the last so that a
// container's cgroups go with it, where podman would leave an empty folder of its
// own in each tree (runc refuses to do without any).
var always = slices.Concat([]string{"--pull", "never", "--network", "none"}, limits, []string{"--cgroup-parent", "/"})

// noTmpfs: with a root that nobody can write, podman gives a container more
// folders than Docker and Kubernetes do, or one fewer: from its version 5 on
// /dev/shm is then read-only, too.
var noTmpfs = []string{"--read-only-tmpfs=false", "--tmpfs", "/dev/shm"}

// working are the flags that the README names for podman.
var working = []string{"--cap-add", "SYS_ADMIN", "--security-opt", "unmask=ALL"}

// run runs the image to its end.
func (b *bed) run(t *testing.T, stdin string, flags []string, command ...string) rig.Output {
	t.Helper()
	args := append(append([]string{"run", "--rm", "--interactive"}, always...), flags...)
	cmd := b.podman(append(append(args, tag), command...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	return rig.Output{Stdout: out.String(), Stderr: errs.String(), Code: rig.Code(err)}
}

// start runs the image in the background, until the test ends.
func (b *bed) start(t *testing.T, flags []string, command ...string) (id string) {
	t.Helper()
	args := append(append([]string{"run", "--detach"}, always...), flags...)
	id = b.must(t, b.podman(append(append(args, tag), command...)...))
	t.Cleanup(func() { b.end(t, id) })
	return id
}

// end takes a container away. podman finds a mount of its busy now and then, and
// takes it away when it is asked again.
func (b *bed) end(t *testing.T, id string) {
	t.Helper()
	var err error
	for range 5 {
		if _, err = b.do(b.podman("rm", "--force", "--ignore", "--time", "0", id)); err == nil {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Error(err)
}

// exec runs a command beside a container's own.
func (b *bed) exec(id string, argv ...string) rig.Output {
	cmd := b.podman(append([]string{"exec", id}, argv...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	return rig.Output{Stdout: out.String(), Stderr: errs.String(), Code: rig.Code(err)}
}

var checked = regexp.MustCompile(`(\d+)/(\d+) checks passed\n?$`)

// passed tells whether a self-check was carried out, and held.
func passed(out string) bool {
	m := checked.FindStringSubmatch(out)
	return m != nil && m[1] == m[2] && len(m[1]) > 1
}

// said waits for a line of a container's.
func (b *bed) said(t *testing.T, id, line string, times int) {
	t.Helper()
	var said string
	for end := time.Now().Add(eachWithin); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if said = b.must(t, b.podman("logs", id)); strings.Count(said, line) >= times {
			return
		}
	}
	t.Fatalf("no %q in\n%s", line, said)
}
