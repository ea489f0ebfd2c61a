package vm_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// engineDisk gives a disk with a real engine's program on it, in the cache of
// the machines. It is Codex, whose program is one static file that was compiled
// before: a turn takes some 9 seconds on an emulated processor.
func engineDisk(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("/bin/sh", filepath.Join(rig.Root(), "testbed/engines.sh"), "codex")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		rig.Missing(t, "Codex cannot be installed: %v", err)
	}
	dir, _, _ := strings.Cut(string(out), "/node_modules/")
	found, _ := filepath.Glob(filepath.Join(dir, "node_modules/@openai/codex-linux-*/vendor/*/bin/codex"))
	if len(found) != 1 {
		t.Fatalf("the programs in %s: %q", dir, found)
	}
	disk := filepath.Join(filepath.Dir(made(t, "trixie")), filepath.Base(dir)+".img")
	if _, err := os.Stat(disk); err == nil {
		return disk
	}
	work, err := os.MkdirTemp(filepath.Dir(disk), ".new.")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	root, image := filepath.Join(work, "root"), filepath.Join(work, "disk")
	err = errors.Join(os.Mkdir(root, 0o755), os.Link(found[0], filepath.Join(root, "codex")))
	if err != nil { // another file system
		err = exec.Command("cp", found[0], filepath.Join(root, "codex")).Run()
	}
	if err == nil {
		err = exec.Command("truncate", "-s", "512M", image).Run()
	}
	if err == nil {
		err = exec.Command("/sbin/mke2fs", "-q", "-t", "ext4", "-O", "^has_journal,^metadata_csum", "-d", root, image).Run()
	}
	if err == nil {
		err = os.Rename(image, disk) // whole or not at all
	}
	if err != nil {
		t.Fatalf("make the engine's disk: %v", err)
	}
	return disk
}
