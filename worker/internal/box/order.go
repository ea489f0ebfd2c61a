package box

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
)

// orderMounts puts parents before children, so that no later mount hides an
// earlier one, and keeps one mount a destination: the last that was asked for,
// which for a work folder is the work folder's own.
func (p *Plan) orderMounts() error {
	last := map[string]int{}
	for i, m := range p.Mounts {
		last[m.Dest] = i
	}
	var kept []Mount
	for i, m := range p.Mounts {
		if last[m.Dest] == i {
			kept = append(kept, m)
		}
	}
	slices.SortStableFunc(kept, func(a, b Mount) int {
		return strings.Count(a.Dest, "/") - strings.Count(b.Dest, "/")
	})
	p.Mounts = p.Mounts[:0]
	for _, m := range kept {
		keep, err := p.belongs(&m)
		if err != nil {
			return err
		}
		if !keep {
			continue
		}
		if m.Nested {
			p.pin(m.Dest)
		}
		p.Mounts = append(p.Mounts, m)
	}
	return nil
}

// closeRoot comes last, when every mount point is made: bubblewrap itself made
// these two folders, and left them writable.
func (p *Plan) closeRoot() {
	p.add(ROAgain, "", "/dev", "no files among the devices")
	p.add(ROAgain, "", "/", "no files in the box's own root")
}

// belongs decides about a mount below a folder that a spec names. This box may
// be able to write there, or another: it could plant a symbolic link at the
// destination. So the place is looked at, held, and looked at again (nested.go),
// and below what this box can write only the mounts that the package comment
// names may be.
func (p *Plan) belongs(m *Mount) (bool, error) {
	above := p.above(m.Dest)
	if above == nil || (above.Kind != Bind && (above.Kind != ROBind || above.Sockets == 0)) {
		m.Nested = false
		return true, nil
	}
	allowed := m.Nested || m.Kind == Tmpfs || above.Kind == ROBind
	there := m.Source == m.Dest && above.Source == above.Dest
	switch {
	case m.Kind == Symlink, there && m.Kind == above.Kind && (m.Kind == Bind || m.Nested):
		return false, nil // it is there through the folder above
	case allowed:
		m.Nested = true
		return true, nil
	}
	return false, reason.New(reason.PathRefused,
		"%s may not enter the box: it lies in %s, which the box can write, so nothing can be laid over it safely", m.Dest, above.Dest)
}

// pin makes mount points of the folders between a writable folder and a nested
// mount below it: nothing else keeps a box from renaming one of them, and with
// it what the mount hides or protects.
func (p *Plan) pin(dest string) {
	above := *p.above(dest)
	if above.Kind != Bind {
		return
	}
	at, source := above.Dest, above.Source
	between := strings.Trim(strings.TrimPrefix(filepath.Dir(dest), above.Dest), "/")
	for name := range strings.SplitSeq(between, "/") {
		if name == "" {
			return
		}
		at, source = filepath.Join(at, name), filepath.Join(source, name)
		p.Mounts = append(p.Mounts, Mount{Kind: Bind, Source: source, Dest: at, Nested: true, Reason: "cannot be moved: something below it is hidden or protected"})
	}
}

// above finds the nearest mount that is already placed above a destination.
func (p *Plan) above(dest string) *Mount {
	var nearest *Mount
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if m.Dest != dest && m.Kind != ROAgain && within(dest, m.Dest) && (nearest == nil || len(m.Dest) > len(nearest.Dest)) {
			nearest = m
		}
	}
	return nearest
}

// within tells whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
