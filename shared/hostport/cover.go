package hostport

import (
	"cmp"
	"slices"
)

// Exactly is the pattern that covers h and nothing else.
func Exactly(h Host) Pattern { return Pattern{host: h} }

// Cover gives the shortest list that still covers the hosts: those of the
// known patterns that are needed, and exactly the hosts that none of them
// covers. Nothing is made wider than it was seen or known. The list is sorted,
// and nothing in it can be left out.
func Cover(hosts []Host, known []Pattern) []Pattern {
	var list []Pattern
	seen := map[Pattern]bool{}
	add := func(p Pattern) {
		if !seen[p] {
			seen[p] = true
			list = append(list, p)
		}
	}
	var covered []Host
	for _, h := range hosts {
		switch {
		case slices.Contains(covered, h):
		case slices.ContainsFunc(known, func(p Pattern) bool { return p.Match(h) }):
			covered = append(covered, h)
		default:
			add(Exactly(h))
		}
	}
	for _, p := range needed(covered, known) {
		add(p)
	}
	slices.SortFunc(list, func(a, b Pattern) int { return cmp.Compare(a.String(), b.String()) })
	return list
}

// needed leaves out the patterns that the others do without, the widest first.
// No host stands twice.
func needed(hosts []Host, known []Pattern) []Pattern {
	by := map[Host]int{} // how many patterns cover it
	list := slices.DeleteFunc(slices.Clone(known), func(p Pattern) bool {
		return !slices.ContainsFunc(hosts, p.Match)
	})
	slices.SortFunc(list, func(a, b Pattern) int {
		return cmp.Or(cmp.Compare(b.width(), a.width()), cmp.Compare(len(a.host.Name), len(b.host.Name)), cmp.Compare(a.String(), b.String()))
	})
	list = slices.Compact(list)
	for _, p := range list {
		for _, h := range hosts {
			if p.Match(h) {
				by[h]++
			}
		}
	}
	return slices.DeleteFunc(list, func(p Pattern) bool {
		for _, h := range hosts {
			if p.Match(h) && by[h] == 1 {
				return false
			}
		}
		for _, h := range hosts {
			if p.Match(h) {
				by[h]--
			}
		}
		return true
	})
}

// width orders patterns by how much they let through.
func (p Pattern) width() (n int) {
	if p.below {
		n += 2
	}
	if p.host.Port == 0 {
		n++
	}
	return n
}
