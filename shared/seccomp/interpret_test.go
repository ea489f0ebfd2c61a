package seccomp

import (
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// call is struct seccomp_data.
type call struct {
	nr   uint32
	arch uint32
	args [6]uint64
}

func (c call) bytes() []byte {
	b := make([]byte, 64)
	binary.LittleEndian.PutUint32(b[0:], c.nr)
	binary.LittleEndian.PutUint32(b[4:], c.arch)
	for i, arg := range c.args {
		binary.LittleEndian.PutUint64(b[16+8*i:], arg)
	}
	return b
}

// run interprets a filter the way the kernel does, as far as ours go, and
// fails the test on anything that the kernel would not load.
func run(t testing.TB, prog []byte, c call) uint32 {
	t.Helper()
	data, a := c.bytes(), uint32(0)
	ins := decode(prog)
	for pc := 0; pc < len(ins); pc++ {
		in := ins[pc]
		yes := false
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = binary.LittleEndian.Uint32(data[in.K:])
			continue
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		case unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ:
			yes = a == in.K
		case unix.BPF_JMP | unix.BPF_K | unix.BPF_JGT:
			yes = a > in.K
		case unix.BPF_JMP | unix.BPF_K | unix.BPF_JSET:
			yes = a&in.K != 0
		default:
			t.Fatalf("instruction %d: code %#x is none of ours", pc, in.Code)
		}
		if yes {
			pc += int(in.Jt)
		} else {
			pc += int(in.Jf)
		}
	}
	t.Fatal("ran past the end of the program")
	return 0
}

func decode(prog []byte) []unix.SockFilter {
	var ins []unix.SockFilter
	for ; len(prog) >= 8; prog = prog[8:] {
		ins = append(ins, unix.SockFilter{
			Code: binary.LittleEndian.Uint16(prog), Jt: prog[2], Jf: prog[3],
			K: binary.LittleEndian.Uint32(prog[4:]),
		})
	}
	return ins
}

// listing prints a program as a person reads it.
func listing(prog []byte) string {
	out := ""
	for i, in := range decode(prog) {
		line := ""
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			line = fmt.Sprintf("ld   [%d]", in.K)
		case unix.BPF_RET | unix.BPF_K:
			line = "ret  " + action(in.K)
		default:
			name := map[uint16]string{unix.BPF_JEQ: "jeq", unix.BPF_JGT: "jgt", unix.BPF_JSET: "jset"}[in.Code&0xf0]
			line = fmt.Sprintf("%-4s %#x ? %d : %d", name, in.K, i+1+int(in.Jt), i+1+int(in.Jf))
		}
		out += fmt.Sprintf("%3d  %s\n", i, line)
	}
	return out
}

func action(k uint32) string {
	switch {
	case k == unix.SECCOMP_RET_ALLOW:
		return "allow"
	case k == unix.SECCOMP_RET_KILL_PROCESS:
		return "kill"
	case k&unix.SECCOMP_RET_ACTION_FULL == unix.SECCOMP_RET_ERRNO:
		return unix.ErrnoName(unix.Errno(k & unix.SECCOMP_RET_DATA))
	}
	return fmt.Sprintf("%#x", k)
}
