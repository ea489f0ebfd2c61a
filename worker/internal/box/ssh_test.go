package box

import (
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
