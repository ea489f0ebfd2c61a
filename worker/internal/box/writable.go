package box

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// writable lists the folders and files that the plan makes writable, for the
// second wall: boxentry gives them to Landlock. What is below another of them
// is left out.
func (p *Plan) writable() []string {
	var all []string
	for _, m := range p.Mounts { // parents come first
		if (m.Kind != Bind && m.Kind != Tmpfs) || p.closes(m.Dest) {
			continue
		}
		if !slices.ContainsFunc(all, func(dir string) bool { return within(m.Dest, dir) }) {
			all = append(all, m.Dest)
		}
	}
	return all
}

// closes tells whether what is mounted there becomes read-only.
func (p *Plan) closes(dest string) bool {
	return slices.ContainsFunc(p.Mounts, func(m Mount) bool { return m.Kind == ROAgain && m.Dest == dest })
}

// keepDisks holds on to what the free space is to be asked of.
func (k *Kit) keepDisks(p *Plan, sources map[string]*os.File) error {
	if !p.DiskFree { // nobody asks
		return nil
	}
	seen := map[uint64]bool{}
	for _, m := range p.Mounts {
		f := sources[m.Dest]
		if m.Kind != Bind || f == nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return reason.New(reason.System, "look at %s: %w", m.Source, err)
		}
		if seen[st.Dev] {
			continue
		}
		seen[st.Dev] = true
		kept, err := again(f)
		if err != nil {
			return err
		}
		k.Disks = append(k.Disks, kept)
	}
	return nil
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
