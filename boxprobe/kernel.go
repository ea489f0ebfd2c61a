package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

func kernelChecks() []Check {
	const off, seedOnly = "seccomp-off", "seccomp-seed-only"
	return []Check{
		{"S03", filter, full, "make, enter and register an io_uring, with bad arguments", "ENOSYS", []string{off, seedOnly, "allow-uring"},
			"inside: a call that no row names reaches the kernel", noRings},
		{"S04", filter, full, "clone3 without arguments", "ENOSYS, which makes a C library use clone", []string{off, seedOnly, "clone3-eperm"},
			"inside: a thread can be started", clone3},
		{"S06", filter, full, "start a process in a user namespace of its own", "refused", []string{"allow-userns"},
			"inside: the same process without one starts", noNestedNamespace},
		{"S10", filter, full, "look for the session key of whoever started the box", "EPERM", []string{off, "allow-keyring"},
			"outside: the key can be read in that session, before and after", noSessionKey},
		{"S13", filter, full, "ask for personalities that weaken memory protection, with and without high bits", "EPERM",
			[]string{off, seedOnly, "old-personality"}, "inside: the personality can be read", noPersonality},
		{"S14", filter, full, "make the calls that engines, shells, git, npm and python need", "success", []string{"deny-too-much"},
			"inside: the check is its own control", ordinaryCalls},
		{"S17", filter, full, "clone into each kind of namespace, with bad arguments, with and without high bits", "EPERM",
			[]string{off, seedOnly, "allow-userns"}, "inside: the same call without a namespace reaches the kernel", noCloneInto},
		{"S18", filter, full, "make a pair of sockets of each family", "EAFNOSUPPORT but for unix", []string{off, seedOnly, "pairs-open"},
			"inside: a unix pair can be made", onlyUnixPairs},
	}
}

// reachesKernel is the control of calls that are refused whatever their
// arguments: one that no row names is answered by the kernel itself.
func reachesKernel() Result {
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOSE, bad, 0, 0); errno != unix.EBADF {
		return unclear("close of a bad descriptor: %s", outcome(errno))
	}
	return pass("it does")
}

func noRings(*Fixture) Result {
	if r := reachesKernel(); r.Verdict != Pass {
		return r
	}
	for _, nr := range []uintptr{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER} {
		if _, _, errno := unix.RawSyscall6(nr, bad, bad, bad, bad, bad, bad); errno != unix.ENOSYS {
			return fail("call %d: %s", nr, outcome(errno))
		}
	}
	return pass("there is no io_uring")
}

func clone3(*Fixture) Result {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	other := make(chan int)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		other <- unix.Gettid()
	}()
	if <-other == unix.Gettid() {
		return unclear("a second thread is the first")
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0); errno != unix.ENOSYS {
		return fail("clone3: %s", outcome(errno))
	}
	return pass("there is no clone3, and threads start")
}

// noNestedNamespace has two walls before it: the filter says EPERM, and
// bubblewrap has set the limit of such namespaces to none, which says ENOSPC.
func noNestedNamespace(*Fixture) Result {
	if err := startWith(0); err != nil {
		return unclear("start a process: %v", err)
	}
	switch err := startWith(unix.CLONE_NEWUSER); err {
	case nil:
		return fail("a process has a user namespace of its own, with every capability in it")
	case unix.EPERM:
		return pass("refused by the filter")
	case unix.ENOSPC, unix.EUSERS:
		return pass("the limit of user namespaces is none")
	default:
		return unclear("start a process in a namespace: %v", err)
	}
}

// startWith starts ourselves with flags of clone, and waits for the end.
func startWith(flags uintptr) error {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	fd := uintptr(null)
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"boxprobe", "canary", "nested"}, &syscall.ProcAttr{
		Env: []string{}, Files: []uintptr{fd, fd, fd}, Sys: &syscall.SysProcAttr{Cloneflags: flags},
	})
	if err != nil {
		return err
	}
	_, err = syscall.Wait4(pid, nil, 0, nil)
	return err
}

func noSessionKey(f *Fixture) Result {
	if f.SessionKey == "" && f.NoSessionKey == "" {
		return unclear("the fixture names no key")
	}
	found, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", f.SessionKey, 0)
	switch {
	case err == nil:
		var content [256]byte
		n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, found, content[:], 0)
		if err != nil || !bytes.Contains(content[:max(0, min(n, len(content)))], []byte(f.Marker)) {
			return fail("the key is found, though it cannot be read: %v", err)
		}
		return fail("the key can be read")
	case err != unix.EPERM && err != unix.ENOSYS:
		return fail("the search for it is not refused by the filter: %v", err)
	case f.NoSessionKey != "":
		return pass("refused; but no key could be planted outside: %s", f.NoSessionKey)
	}
	return pass("refused")
}

// noPersonality changes that of a thread of its own, and puts it back.
func noPersonality(*Fixture) Result {
	const read = 0xffffffff
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, read, 0, 0)
	if errno != 0 {
		return unclear("read the personality: %s", outcome(errno))
	}
	for _, persona := range []uintptr{0x0400000, 0x0200000, 0x0100000} { // READ_IMPLIES_EXEC, ADDR_COMPAT_LAYOUT, MMAP_PAGE_ZERO
		for _, p := range []uintptr{persona, persona | highBit} {
			if _, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, p, 0, 0); errno != unix.EPERM {
				unix.RawSyscall(unix.SYS_PERSONALITY, old, 0, 0)
				return fail("personality(%#x): %s", p, outcome(errno))
			}
		}
	}
	return pass("refused")
}

// noCloneInto asks for what the kernel refuses for another reason, should the
// filter let it through: signal handlers shared without the memory.
func noCloneInto(*Fixture) Result {
	clone := func(flags uintptr) unix.Errno {
		_, _, errno := unix.RawSyscall6(unix.SYS_CLONE, flags|unix.CLONE_SIGHAND, 0, 0, 0, 0, 0)
		return errno
	}
	if errno := clone(0); errno != unix.EINVAL {
		return unclear("clone of nothing: %s", outcome(errno))
	}
	for _, flag := range []uintptr{unix.CLONE_NEWUSER, unix.CLONE_NEWNS, unix.CLONE_NEWPID, unix.CLONE_NEWNET,
		unix.CLONE_NEWIPC, unix.CLONE_NEWUTS, unix.CLONE_NEWCGROUP} {
		for _, flags := range []uintptr{flag, flag | unix.CLONE_NEWUSER, flag | highBit} {
			if errno := clone(flags); errno != unix.EPERM {
				return fail("clone(%#x): %s", flags, outcome(errno))
			}
		}
	}
	return pass("all refused")
}

func onlyUnixPairs(*Fixture) Result {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return unclear("make a unix pair: %v", err)
	}
	unix.Close(pair[0])
	unix.Close(pair[1])
	for family := uintptr(0); family < unix.AF_MAX; family++ {
		if family == unix.AF_UNIX {
			continue
		}
		for _, f := range []uintptr{family, family | highBit} {
			if _, _, errno := unix.RawSyscall6(unix.SYS_SOCKETPAIR, f, badType, 0, bad, 0, 0); errno != unix.EAFNOSUPPORT {
				return fail("a pair of family %#x is not refused by the filter: %s", f, outcome(errno))
			}
		}
	}
	return pass("unix only")
}

// ordinaryCalls are what a filter that refuses too much breaks first. Each
// leaves nothing behind.
func ordinaryCalls(*Fixture) Result {
	opens := func(fd int, err error) error {
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	for _, call := range []struct {
		name string
		do   func() error
	}{
		{"memfd_create", func() error { return opens(unix.MemfdCreate("boxprobe", unix.MFD_CLOEXEC)) }},
		{"inotify_init1", func() error { return opens(unix.InotifyInit1(unix.IN_CLOEXEC)) }},
		{"eventfd2", func() error { return opens(unix.Eventfd(0, unix.EFD_CLOEXEC)) }},
		{"timerfd_create", func() error { return opens(unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)) }},
		{"signalfd4", func() error { return opens(unix.Signalfd(-1, new(unix.Sigset_t), unix.SFD_CLOEXEC)) }},
		{"epoll_create1", func() error { return opens(unix.EpollCreate1(unix.EPOLL_CLOEXEC)) }},
		{"pidfd_open", func() error { return opens(unix.PidfdOpen(os.Getpid(), 0)) }},
		{"openat2", func() error {
			return opens(unix.Openat2(unix.AT_FDCWD, "/tmp", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}))
		}},
		{"getrandom", func() error { _, err := unix.Getrandom(make([]byte, 8), 0); return err }},
		{"statx", func() error { return unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_BASIC_STATS, new(unix.Statx_t)) }},
		{"sched_getaffinity", func() error { return unix.SchedGetaffinity(0, new(unix.CPUSet)) }},
		{"prctl", func() error { _, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); return err }},
		{"fork and exec", func() error { return startWith(0) }},
	} {
		if err := call.do(); err != nil {
			return fail("%s: %v", call.name, fmt.Sprint(errno(err)))
		}
	}
	return pass("all answered")
}
