package box

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Every engine's box has ssh settings of its own and cannot write them.
func TestSSHSettings(t *testing.T) {
	const dir, file = "/etc/ssh/ssh_config.d", "/etc/ssh/ssh_config.d/botbox.conf"
	for mode, gated := range map[string]bool{"gated": true, "none": false} {
		s := claude("private")
		s.Net.Mode = mode
		p, err := NewPlan(s, debian(), ports)
		if err != nil {
			t.Fatal(err)
		}
		if _, there := p.Files[file]; there != gated {
			t.Errorf("%s: files %v", mode, p.Files)
		}
		if m := p.nearest(file); m.Dest != dir || m.Kind != Tmpfs || !p.closes(dir) || slices.Contains(p.Writable, dir) {
			t.Errorf("%s: %+v; the box can write %q", mode, m, p.Writable)
		}
	}
}

// What is not there cannot be covered: bubblewrap would make no box. A link is
// left alone.
func TestSSHFoldersComeAndGo(t *testing.T) {
	defer func(was []string) { sshFolders = was }(sshFolders)
	top := resolve(t.TempDir())
	folder, link, above := filepath.Join(top, "ssh_config.d"), filepath.Join(top, "link"), filepath.Join(top, "above/ssh_config.d")
	sshFolders = []string{folder, link, above}
	m := LookAt("maus", "/nonexistent", "/nonexistent")
	for _, make := range []func() error{
		func() error { return nil },
		func() error { return os.Mkdir(folder, 0o755) },
		func() error { return os.Symlink(folder, link) },
		func() error { return os.Symlink(top, filepath.Join(top, "above")) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		var want []string
		if _, err := os.Lstat(folder); err == nil {
			want = []string{folder}
		}
		if m = m.Again(); !slices.Equal(m.SSHFolders, want) {
			t.Errorf("%q, want %q", m.SSHFolders, want)
		}
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	if m = m.Again(); len(m.SSHFolders) != 0 {
		t.Errorf("gone, and still %q", m.SSHFolders)
	}
}
