package box

import (
	"path/filepath"
	"strings"
)

// At tells what stands at a path in the box: the mount that shows it. Without
// one the path is not in the box, or is no more than a way to what is below it.
func (p *Plan) At(path string) (Mount, bool) {
	for range len(rootNames) { // as many links as a root has
		m := p.nearest(path)
		if m == nil {
			return Mount{}, false
		}
		if m.Kind != Symlink {
			return *m, true
		}
		path = filepath.Join(filepath.Dir(m.Dest), m.Source, strings.TrimPrefix(path, m.Dest))
	}
	return Mount{}, false
}

// nearest is the mount at a path, or the nearest one above it.
func (p *Plan) nearest(path string) *Mount {
	for i := range p.Mounts {
		if m := &p.Mounts[i]; m.Dest == path && m.Kind != ROAgain {
			return m
		}
	}
	return p.above(path)
}

// LeadsTo tells whether anything stands below a path in the box.
func (p *Plan) LeadsTo(path string) bool {
	for _, m := range p.Mounts {
		if m.Dest != path && within(m.Dest, path) {
			return true
		}
	}
	return false
}

// Enters tells why what is asked for at a path may not enter after all, now
// that it can be looked at. It leaves nothing open.
func (p *Plan) Enters(path string) error {
	for _, m := range p.Mounts {
		if m.Dest == path && m.Source == path && (m.Kind == Bind || m.Kind == ROBind) {
			f, err := openSource(m)
			if err != nil {
				return err
			}
			return f.Close()
		}
	}
	return nil // it is there through a folder above
}

func (k MountKind) String() string {
	return [...]string{"read and write", "read-only", "an empty private folder", "the box's own /proc", "the box's own /dev", "a link", "read-only"}[k]
}
