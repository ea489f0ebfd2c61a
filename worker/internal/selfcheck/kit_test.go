package selfcheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/rig"
)

// testBuild is what the programs of these tests say that they are.
const testBuild = "selfcheck-test"

// programs are built once, in a folder that every user can read.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "selfcheck"); err != nil {
		return "", err
	}
	remove = func() { os.RemoveAll(dir) }
	for name, source := range map[string]string{"botbox": "worker", "boxentry": "boxprobe/boxentry", "boxprobe": "boxprobe"} {
		if err := compile(filepath.Join(dir, name), "../../../"+source, ""); err != nil {
			return dir, err
		}
	}
	return dir, os.Chmod(dir, 0o755)
})

// remove takes the programs away, if they were built.
var remove = func() {}

func TestMain(m *testing.M) {
	if os.Getenv(namelessEnv) != "" {
		panic(withoutHostNames(os.Args[1:]))
	}
	// Whatever outlives its parent becomes our child, and can be counted.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	code := m.Run()
	remove()
	os.Exit(code)
}

func compile(to, source, link string) error {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", to, "-ldflags", "-X github.com/openmausbot/botbox/shared/wire.Build="+testBuild+" "+link, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

func built(t *testing.T) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// botbox is a call of the built program, by this user or another. Root's call
// becomes an ordinary user's by itself.
func botbox(t *testing.T, dir string, who *syscall.SysProcAttr, words ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, "botbox"), words...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent"}
	cmd.SysProcAttr = who
	return cmd
}

// litter lists the self-check's folders that are there now.
func litter(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, dir := range slices.Concat(sharedFolders()...) {
		names, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			all[name] = true
		}
	}
	return all
}

// orphans lists the living processes that have outlived who started them, and
// buries the dead: bubblewrap does not wait for the box's first process, which
// ends a moment later.
func orphans(t *testing.T) []string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Fatalf("list processes: %v", err)
	}
	var living []string
	for _, stat := range stats {
		text, _ := os.ReadFile(stat)
		name, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest) // state, parent, …
		if len(fields) < 2 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		if fields[0] != "Z" {
			living = append(living, name+")")
		} else if pid, err := strconv.Atoi(strings.Fields(name)[0]); err == nil {
			unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
	return living
}

// broken is a folder of the programs, built of edited sources.
func broken(t *testing.T, edits []rig.Edit) string {
	t.Helper()
	dir := openFolder(t)
	if err := rig.CompileOver(dir, rig.Overlay(t, rig.Root(), edits), testBuild); err != nil {
		t.Fatal(err)
	}
	return dir
}

// openFolder is one that every user can read.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "selfcheck")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
