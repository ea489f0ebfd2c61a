package box

import (
	"slices"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
)

// orderMounts puts parents before children, so that no later mount hides an
// earlier one, and keeps one mount a destination: the last that was asked for,
// which for a work folder is the writable one.
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
		keep, err := p.belongs(m)
		if err != nil {
			return err
		}
		if keep {
			p.Mounts = append(p.Mounts, m)
		}
	}
	// Last, when every mount point is made: the two folders that bubblewrap
	// itself made and left writable.
	p.add(ROAgain, "", "/dev", "no files among the devices")
	p.add(ROAgain, "", "/", "no files in the box's own root")
	return nil
}

// belongs decides about a mount below a folder of the machine that the box can
// write. bubblewrap before 0.12 follows a symbolic link at a destination, and
// out of the box (CVE-2026-87766): another box that writes there could plant
// one. So there is no such mount, but for the data folder's mask, which every
// box that sees the place has, and which nothing can move or remove.
func (p *Plan) belongs(m Mount) (bool, error) {
	above := p.above(m.Dest)
	if above == nil || above.Kind != Bind || m.Kind == Tmpfs {
		return true, nil
	}
	if m.Source == m.Dest && above.Source == above.Dest && m.Kind == Bind {
		return false, nil // it is there already, through the folder above
	}
	return false, reason.New(reason.PathRefused,
		"%s may not enter the box: it lies in %s, which the box can write, so nothing can be laid over it safely", m.Dest, above.Dest)
}

// above finds the nearest mount that is already placed above a destination.
func (p *Plan) above(dest string) *Mount {
	var nearest *Mount
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if m.Dest != dest && within(dest, m.Dest) && (nearest == nil || len(m.Dest) > len(nearest.Dest)) {
			nearest = m
		}
	}
	return nearest
}

// within tells whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
