package vm_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// archive is an initramfs in the form that the kernel calls newc. It is not
// compressed: unpacking takes an emulated processor longer than reading.
type archive struct {
	bytes.Buffer
	made map[string]bool
	next int
}

// add appends a file or, with content nil, a folder, all root's.
func (a *archive) add(name string, mode os.FileMode, content []byte) {
	if a.made == nil {
		a.made = map[string]bool{".": true}
	}
	if dir := filepath.Dir(name); !a.made[dir] {
		a.add(dir, 0o755, nil)
	}
	kind := uint32(0o100000)
	if content == nil {
		kind = 0o040000
		a.made[name] = true
	}
	a.next++
	fmt.Fprintf(a, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		a.next, kind|uint32(mode), 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	a.WriteString(name + "\x00")
	a.pad()
	a.Write(content)
	a.pad()
}

func (a *archive) pad() {
	for a.Len()%4 != 0 {
		a.WriteByte(0)
	}
}

func (a *archive) finish() []byte {
	a.add("TRAILER!!!", 0, []byte{})
	return a.Bytes()
}

func (a *archive) addFile(name, from string) error {
	b, err := os.ReadFile(from)
	if err == nil {
		a.add(name, 0o755, b)
	}
	return err
}

// modules are loaded in this order: those before the root file system, with
// what they need, and those after it. What a kernel has built in is no file.
var modules = map[string][]string{
	"modules/boot":  {"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk"},
	"modules/later": {"vsock", "vmw_vsock_virtio_transport_common", "vmw_vsock_virtio_transport", "vsock_loopback"},
}

// initrd packs the programs of this checkout and the kernel's modules.
func initrd(made, programs string) ([]byte, error) {
	var a archive
	if err := a.addFile("init", filepath.Join(programs, "guest")); err != nil {
		return nil, err
	}
	for _, name := range []string{"botbox-supervisor", "botbox", "boxentry", "boxprobe", "guest", "standin", "bwrap.profile"} {
		if err := a.addFile("programs/"+name, filepath.Join(programs, name)); err != nil {
			return nil, err
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(modules)) {
		a.add(dir, 0o755, nil)
		for i, name := range modules[dir] {
			found, _ := filepath.Glob(filepath.Join(made, "modules", name+".ko*"))
			if len(found) == 0 {
				continue
			}
			if err := a.addFile(fmt.Sprintf("%s/%d-%s", dir, i, filepath.Base(found[0])), found[0]); err != nil {
				return nil, err
			}
		}
	}
	return a.finish(), nil
}
