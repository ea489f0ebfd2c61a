package seccomp

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Where the kernel puts things in struct seccomp_data. The low word of an
// argument comes first on both CPUs.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// x32Bit marks a call of x32, which is x86-64 by its architecture and yet has
// a second table of calls. The number -1 has the bit as well.
const x32Bit = 0x40000000

// auditArch gives the kernel's name of a CPU, or 0.
func auditArch(arch Arch) uint32 {
	switch arch {
	case AMD64:
		return unix.AUDIT_ARCH_X86_64
	case ARM64:
		return unix.AUDIT_ARCH_AARCH64
	}
	return 0
}

// Assemble gives the filter of one kind of box on one CPU as an array of
// struct sock_filter, which is what bubblewrap's --seccomp reads. It panics on
// a kind or a CPU that it does not know, for a box without its filter must not
// start; Native tells beforehand.
func Assemble(kind Kind, arch Arch) []byte { return AssembleOf(table, kind, arch, 0) }

// Modes are modes of the CPU whose calls a filter lets through unjudged.
type Modes int

// The modes that every box's filter ends a program for.
const (
	Foreign Modes = 1 << iota // another architecture: i386 on x86-64
	X32
)

// AssembleOf gives a filter of other rows than the table's, with modes left
// open. It is the self-check's, which takes a protection away from a box of its
// own to see that a check notices.
func AssembleOf(rows []Row, kind Kind, arch Arch, open Modes) []byte {
	if auditArch(arch) == 0 || (kind != Engine && kind != Browser) {
		panic(fmt.Sprintf("seccomp: no filter for kind %d on %q", kind, arch))
	}
	prog := prologue(arch, open)
	for _, row := range rows {
		if row.Number(arch) == None || (row.Only != 0 && row.Only != kind) {
			continue
		}
		prog = append(prog, refuse(row, arch)...)
	}
	prog = append(prog, ret(unix.SECCOMP_RET_ALLOW))
	return encode(prog)
}

// prologue ends calls of other CPU modes and of newer kernels. It leaves the
// call's number in the accumulator, where every row expects it.
func prologue(arch Arch, open Modes) []unix.SockFilter {
	foreign := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	if open&Foreign != 0 {
		foreign = unix.SECCOMP_RET_ALLOW
	}
	prog := []unix.SockFilter{
		load(offArch),
		jump(unix.BPF_JEQ, auditArch(arch), 1, 0),
		ret(foreign),
		load(offNumber),
	}
	if arch == AMD64 && open&X32 == 0 {
		prog = append(prog,
			jump(unix.BPF_JSET, x32Bit, 0, 1),
			ret(unix.SECCOMP_RET_KILL_PROCESS))
	}
	return append(prog,
		jump(unix.BPF_JGT, Ceiling, 0, 1),
		ret(errno(unix.ENOSYS)))
}

// refuse gives the instructions of one row. They return, or go on behind their
// end with the call's number in the accumulator.
func refuse(row Row, arch Arch) []unix.SockFilter {
	answer := ret(errno(row.Errno))
	var body []unix.SockFilter
	if row.When.Test == Always {
		body = []unix.SockFilter{answer}
	} else {
		body = append(compare(row.When), answer, load(offNumber))
	}
	number := jump(unix.BPF_JEQ, uint32(row.Number(arch)), 0, len(body))
	return append([]unix.SockFilter{number}, body...)
}

// compare gives instructions that fall through when the condition holds, and
// jump over exactly one more instruction, the answer, when it does not.
func compare(c Condition) []unix.SockFilter {
	prog := []unix.SockFilter{load(offArgs + 8*c.Arg)}
	last := len(c.Values) - 1
	for i, value := range c.Values {
		refused, next := last-i, 0
		switch {
		case c.Test == AnyFlag:
			prog = append(prog, jump(unix.BPF_JSET, value, 0, 1))
			continue
		case c.Test == NotIn:
			refused++ // a listed value jumps behind the answer, not to it
		case i == last:
			next = 1
		}
		prog = append(prog, jump(unix.BPF_JEQ, value, refused, next))
	}
	if c.If == nil {
		return prog
	}
	only := []unix.SockFilter{
		load(offArgs + 8*c.If.Arg),
		jump(unix.BPF_JEQ, c.If.Value, 0, len(prog)+1),
	}
	return append(only, prog...)
}

func load(offset int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(offset)}
}

func jump(test uint16, k uint32, yes, no int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | test, Jt: uint8(yes), Jf: uint8(no), K: k}
}

func ret(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

func errno(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }

func encode(prog []unix.SockFilter) []byte {
	out := make([]byte, 0, 8*len(prog))
	for _, in := range prog {
		out = binary.LittleEndian.AppendUint16(out, in.Code)
		out = append(out, in.Jt, in.Jf)
		out = binary.LittleEndian.AppendUint32(out, in.K)
	}
	return out
}
