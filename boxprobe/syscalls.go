package main

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/seccomp"
)

func syscallExtras() []Check {
	const off, seedOnly = "seccomp-off", "seccomp-seed-only"
	return []Check{
		{"S01", filter, full, "the 34 calls of the seed, with bad arguments", "the filter's errno for each", []string{off, "allow-keyring", "allow-mount"},
			"inside: a call that no row names reaches the kernel", func(*Fixture) Result { return refusedCalls(true) }},
		{"S02", filter, full, "the other calls of the filter's table, with bad arguments", "the filter's errno for each", []string{off, seedOnly, "allow-uring", "clone3-eperm"},
			"inside: a call that no row names reaches the kernel", func(*Fixture) Result { return refusedCalls(false) }},
		{"S05", filter, full, "unshare each kind of namespace, with and without high bits", "EPERM", []string{off, seedOnly, "allow-userns"},
			"inside: unshare without a flag succeeds", noNamespaces},
		{"S09", filter, full, "read the filter's mode", "2", []string{off}, "inside: the line is found",
			func(*Fixture) Result { return statusIs("Seccomp", "2") }},
		{"S11", filter, full, "make a socket of each family, with and without high bits, never connecting",
			"EAFNOSUPPORT but for unix, IPv4, IPv6, netlink", []string{off, seedOnly, "vsock-allowed"}, "inside: those four can be made", onlyFourFamilies},
		{"S12", filter, full, "make a netlink socket of each protocol", "EAFNOSUPPORT but for route", []string{off, seedOnly, "netlink-open"},
			"inside: that one can be made", onlyRouteNetlink},
		{"N06", filter, full, "make an AF_VSOCK socket, never connecting", "EAFNOSUPPORT", []string{off, seedOnly, "vsock-allowed"},
			"inside: a unix socket can be made", func(*Fixture) Result { return worst(family(unix.AF_UNIX, true), family(unix.AF_VSOCK, false)) }},
		{"P10", filter, full, "TIOCSTI and TIOCLINUX on no terminal, with and without high bits", "EPERM",
			[]string{off, seedOnly, "no-tty-rule"}, "inside: another ioctl gives EBADF", noTyping},
	}
}

const (
	bad     = ^uintptr(0) // no pointer, no descriptor, and as flags more than any call knows
	highBit = uintptr(1) << 32
)

// refusedCount is how many calls are always refused, by whether they are of the
// seed's. The probe asks the filter's own table which they are: a row that is
// lost there would be missed by nobody.
var refusedCount = map[seccomp.Arch]map[bool]int{
	seccomp.AMD64: {true: 34, false: 38},
	seccomp.ARM64: {true: 32, false: 30},
}

// refusedCalls makes the calls of the table that are always refused. Bad
// arguments make a call harmless that no filter stops, and most of them then
// answer with another errno. A few ask for a capability first and say EPERM
// either way: they alone prove nothing, but they are never alone.
func refusedCalls(seedOnes bool) Result {
	arch, err := seccomp.Native()
	if err != nil {
		return unclear("%v", err)
	}
	if r := reachesKernel(); r.Verdict != Pass {
		return r
	}
	inSeed := map[string]bool{}
	for _, row := range seccomp.SeedCalls() {
		inSeed[row.Name] = true
	}
	var wrong []string
	numbers := map[int]bool{}
	for _, row := range seccomp.All() {
		nr := row.Number(arch)
		if row.When.Test != seccomp.Always || nr == seccomp.None || inSeed[row.Name] != seedOnes {
			continue
		}
		numbers[int(nr)] = true
		_, _, errno := unix.RawSyscall6(uintptr(nr), bad, bad, bad, bad, bad, bad)
		if errno != row.Errno {
			wrong = append(wrong, row.Name+" "+outcome(errno))
		}
	}
	switch count := refusedCount[arch][seedOnes]; {
	case len(wrong) > 0:
		return fail("%d of %d calls answer otherwise: %s", len(wrong), count, strings.Join(wrong, ", "))
	case len(numbers) != count:
		return fail("the filter refuses %d different calls of %d", len(numbers), count)
	}
	return pass("%d calls refused", len(numbers))
}

// noNamespaces needs no privilege to tell: a process with threads that may
// unshare hears EINVAL of the kernel.
func noNamespaces(*Fixture) Result {
	if _, _, errno := unix.RawSyscall(unix.SYS_UNSHARE, 0, 0, 0); errno != 0 {
		return unclear("unshare of nothing: %s", outcome(errno))
	}
	for _, flag := range []uintptr{unix.CLONE_NEWUSER, unix.CLONE_NEWNS, unix.CLONE_NEWPID, unix.CLONE_NEWNET,
		unix.CLONE_NEWIPC, unix.CLONE_NEWUTS, unix.CLONE_NEWCGROUP, unix.CLONE_NEWTIME} {
		for _, flags := range []uintptr{flag, flag | unix.CLONE_NEWUSER, flag | highBit} {
			if _, _, errno := unix.RawSyscall(unix.SYS_UNSHARE, flags, 0, 0); errno != unix.EPERM {
				return fail("unshare(%#x): %s", flags, outcome(errno))
			}
		}
	}
	return pass("all refused")
}

func onlyFourFamilies(*Fixture) Result {
	var results []Result
	for f := uintptr(0); f < unix.AF_MAX; f++ {
		allowed := f == unix.AF_UNIX || f == unix.AF_INET || f == unix.AF_INET6 || f == unix.AF_NETLINK
		results = append(results, family(f, allowed), family(f|highBit, allowed))
	}
	if r := worst(results...); r.Verdict != Pass {
		return r
	}
	return pass("four families of %d", unix.AF_MAX)
}

// badType is a type that no socket has. The kernel looks at it before it looks
// for the family, so EINVAL means that the filter let the call through, also
// for a family that this kernel lacks, and no socket and no module comes of it.
const badType = 15

// family asks for a socket of a family. One that is allowed is really made, as
// the control.
func family(f uintptr, allowed bool) Result {
	kind := uintptr(badType)
	if allowed {
		kind = unix.SOCK_DGRAM | unix.SOCK_CLOEXEC
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_SOCKET, f, kind, 0)
	if errno == 0 {
		unix.Close(int(fd))
	}
	switch {
	case allowed && errno == 0, !allowed && errno == unix.EAFNOSUPPORT:
		return pass("%s", outcome(errno))
	case allowed:
		return unclear("a socket of family %#x cannot be made: %s", f, outcome(errno))
	default:
		return fail("a socket of family %#x is not refused by the filter: %s", f, outcome(errno))
	}
}

func onlyRouteNetlink(*Fixture) Result {
	if r := family(unix.AF_NETLINK, true); r.Verdict != Pass { // protocol 0 is route
		return r
	}
	for protocol := uintptr(1); protocol < 32; protocol++ {
		_, _, errno := unix.RawSyscall(unix.SYS_SOCKET, unix.AF_NETLINK, badType, protocol)
		if errno != unix.EAFNOSUPPORT {
			return fail("netlink protocol %d: %s", protocol, outcome(errno))
		}
	}
	return pass("route only")
}

func noTyping(*Fixture) Result {
	if _, _, errno := unix.RawSyscall(unix.SYS_IOCTL, bad, unix.TCGETS, 0); errno != unix.EBADF {
		return unclear("another ioctl: %s", outcome(errno))
	}
	for _, request := range []uintptr{unix.TIOCSTI, unix.TIOCLINUX} {
		for _, high := range []uintptr{0, highBit, 1 << 63} {
			if _, _, errno := unix.RawSyscall(unix.SYS_IOCTL, bad, request|high, 0); errno != unix.EPERM {
				return fail("ioctl %#x: %s", request|high, outcome(errno))
			}
		}
	}
	return pass("refused")
}

// outcome names what a raw call answered.
func outcome(errno unix.Errno) string {
	if errno == 0 {
		return "success"
	}
	return unix.ErrnoName(errno)
}
