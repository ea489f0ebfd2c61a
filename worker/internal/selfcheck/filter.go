package selfcheck

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/seccomp"
	"github.com/openmausbot/botbox/worker/internal/box"
)

// filterMutations change the system-call filter, one rule or all of it.
var filterMutations = []mutation{
	{"seccomp-off", "the whole filter", noFilter},
	{"seccomp-seed-only", "all of the filter but the 34 calls of the seed", weaken(func([]seccomp.Row) []seccomp.Row { return seccomp.SeedCalls() }, 0)},
	{"no-arch-kill", "the end of programs that call by the table of another architecture", weaken(all, seccomp.Foreign)},
	{"no-x32-kill", "the end of programs that call by the table of x32", weaken(all, seccomp.X32)},
	{"allow-mount", "the refusal of mount", weaken(dropping("mount"), 0)},
	{"allow-keyring", "the refusal of the keyring calls", weaken(dropping("keyctl", "add_key", "request_key"), 0)},
	{"allow-uring", "the refusal of io_uring", weaken(dropping("io_uring_setup", "io_uring_enter", "io_uring_register"), 0)},
	{"clone3-eperm", "the answer to clone3 that C libraries understand", weaken(clone3Refused, 0)},
	{"vsock-allowed", "the refusal of AF_VSOCK sockets", weaken(vsockAllowed, 0)},
	{"netlink-open", "the refusal of netlink's other protocols", weaken(netlinkOpen, 0)},
	{"pairs-open", "the refusal of other socket pairs than unix ones", weaken(dropping("socketpair"), 0)},
	{"old-personality", "the refusal of old personalities", weaken(dropping("personality"), 0)},
	{"no-tty-rule", "the refusal of typing on the terminal", weaken(dropping("ioctl"), 0)},
	{"allow-userns", "what keeps nested namespaces away: the box is of a browser's kind", func(_ *outside, p *box.Plan) { p.Seccomp = seccomp.Browser }},
	{"deny-too-much", "a call that programs need", weaken(memfdRefused, 0)},
}

// weakness is what is left of the filter when all mutations have had their say.
type weakness struct {
	rows []seccomp.Row
	open seccomp.Modes
	none bool
}

// weaken changes the filter's rows, and opens modes of the CPU.
func weaken(change func([]seccomp.Row) []seccomp.Row, open seccomp.Modes) func(*outside, *box.Plan) {
	return func(o *outside, _ *box.Plan) {
		if o.weak == nil {
			o.weak = &weakness{rows: seccomp.All()}
		}
		o.weak.rows, o.weak.open = change(o.weak.rows), o.weak.open|open
	}
}

func noFilter(o *outside, p *box.Plan) {
	weaken(all, 0)(o, p)
	o.weak.none = true
}

// filter is the plan's own, empty for none at all, or nil for the one that every box has.
func (w *weakness) filter(kind seccomp.Kind) []byte {
	arch, err := seccomp.Native()
	switch {
	case w == nil || err != nil: // then there is no box, for there is no filter
		return nil
	case w.none:
		return []byte{}
	}
	return seccomp.AssembleOf(w.rows, kind, arch, w.open)
}

func all(rows []seccomp.Row) []seccomp.Row { return rows }

func dropping(names ...string) func([]seccomp.Row) []seccomp.Row {
	return func(rows []seccomp.Row) []seccomp.Row {
		return slices.DeleteFunc(rows, func(r seccomp.Row) bool { return slices.Contains(names, r.Name) })
	}
}

func clone3Refused(rows []seccomp.Row) []seccomp.Row {
	for i := range rows {
		if rows[i].Name == "clone3" {
			rows[i].Errno = unix.EPERM
		}
	}
	return rows
}

func vsockAllowed(rows []seccomp.Row) []seccomp.Row {
	for i := range rows {
		if rows[i].Name == "socket" && rows[i].When.If == nil {
			rows[i].When.Values = append(slices.Clone(rows[i].When.Values), unix.AF_VSOCK)
		}
	}
	return rows
}

func netlinkOpen(rows []seccomp.Row) []seccomp.Row {
	return slices.DeleteFunc(rows, func(r seccomp.Row) bool { return r.Name == "socket" && r.When.If != nil })
}

func memfdRefused(rows []seccomp.Row) []seccomp.Row {
	return append(rows, seccomp.Row{Name: "memfd_create", AMD64: 319, ARM64: 279, Errno: unix.EPERM, Reason: "mutation deny-too-much"})
}
