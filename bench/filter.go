package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/seccomp"
)

const (
	callRounds = 15
	calls      = 200_000 // of a child, after as many to warm up
)

// callKinds are the two ways that a filter costs. The kernel (5.11) remembers
// the calls that a filter allows whatever their arguments are, and does not
// run it for them; for the others it runs every time.
var callKinds = []struct {
	name, what string
	call       func()
}{
	{"getppid", "allowed whatever its arguments", func() { unix.RawSyscallNoError(unix.SYS_GETPPID, 0, 0, 0) }},
	{"ioctl", "judged by its arguments", func() { unix.RawSyscall(unix.SYS_IOCTL, ^uintptr(0), unix.TCGETS, 0) }},
}

// child is the first argument of the benchmark's own second process, which
// times one kind of call: a filter cannot be taken off again.
const child = "time-calls"

// printFilter shows what a box's filter adds to a system call.
func printFilter() error {
	fmt.Printf("\na system call under the filter of an engine's box, %d rounds in turn, ns at the median\n", callRounds)
	for _, kind := range callKinds {
		var bare, filtered []time.Duration
		for range callRounds {
			for _, way := range []struct {
				filter string
				took   *[]time.Duration
			}{{"bare", &bare}, {"filtered", &filtered}} {
				one, err := timeCall(kind.name, way.filter)
				if err != nil {
					return err
				}
				*way.took = append(*way.took, one)
			}
		}
		b, f := middle(bare), middle(filtered)
		fmt.Printf("%-8s %-31s bare %.0f, filtered %.0f: %+.0f\n", kind.name, "("+kind.what+")", b, f, f-b)
	}
	fmt.Println("promise: ≤ +120 ns")
	return nil
}

// timeCall gives the time that calls of one kind took in a process of its own.
func timeCall(name, filter string) (time.Duration, error) {
	out, err := exec.Command("/proc/self/exe", child, name, filter).Output()
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", name, filter, err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return time.Duration(n), err
}

// middle gives the median's nanoseconds a call.
func middle(took []time.Duration) float64 {
	c := contender{took: took}
	c.sort()
	return float64(c.median().Nanoseconds()) / calls
}

// timeCalls is the second process.
func timeCalls(name, filter string) error {
	runtime.LockOSThread()
	if filter == "filtered" {
		if err := loadFilter(); err != nil {
			return err
		}
	}
	for _, kind := range callKinds {
		if kind.name != name {
			continue
		}
		for range calls {
			kind.call()
		}
		begin := time.Now()
		for range calls {
			kind.call()
		}
		fmt.Println(time.Since(begin).Nanoseconds())
		return nil
	}
	return fmt.Errorf("no kind of call %q", name)
}

// loadFilter puts the calling thread under the filter of an engine's box.
func loadFilter() error {
	arch, err := seccomp.Native()
	if err != nil {
		return err
	}
	program := seccomp.Assemble(seccomp.Engine, arch)
	filter := unix.SockFprog{Len: uint16(len(program) / int(unsafe.Sizeof(unix.SockFilter{}))), Filter: (*unix.SockFilter)(unsafe.Pointer(&program[0]))}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl(PR_SET_NO_NEW_PRIVS)", err)
	}
	return os.NewSyscallError("prctl(PR_SET_SECCOMP)", unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0))
}
