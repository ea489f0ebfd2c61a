package box

import (
	"slices"

	"golang.org/x/sys/unix"
)

// writable lists the folders and files that the plan makes writable, for the
// second wall: boxentry gives them to Landlock. What is below another of them
// is left out.
func (p *Plan) writable() []string {
	var all []string
	for _, m := range p.Mounts { // parents come first
		if m.Kind != Bind && m.Kind != Tmpfs {
			continue
		}
		if !slices.ContainsFunc(all, func(dir string) bool { return within(m.Dest, dir) }) {
			all = append(all, m.Dest)
		}
	}
	return all
}

// Landlock gives the version of this kernel's Landlock, 0 when it has none:
// the one that boxes will meet, for they share the kernel.
func Landlock() int {
	v, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}
