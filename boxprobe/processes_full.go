package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func processRows() []Check {
	return []Check{
		{"P02", pidNS, full, "read the canary's command line, memory, root, folder and files", "ENOENT", []string{"share-pid"},
			"outside: its command line can be read; inside: our own can", canaryClosed},
		{"P04", pidNS, full, "open the canary by number, read its memory, trace it", "ESRCH", []string{"share-pid"},
			"outside: the canary is alive afterwards; inside: the first two work on ourselves", canaryUntouchable},
		{"P08", pidNS, full, "look for shared memory of another turn", "ENOENT", []string{"share-ipc"},
			"outside: the segment is there; inside: one of our own can be made and found", noSharedMemory},
		{"P09", pidNS, full, "read the host name", "the box's own", []string{"share-uts"}, "inside: it can be read", ownHostName},
		{"P11", privileges, full, "open the terminal of whoever started the box", "ENXIO", []string{"no-new-session"},
			"outside: the box was started from one; inside: /dev/tty is there", noTerminal},
		{"P13", pidNS, full, "leave a process behind that nobody waits for", "gone when the box is", []string{"share-pid"},
			"inside: it runs while we do", leavesProcess},
		{"P16", privileges, full, "read our user and group; become root", "not 0, not root's outside; EPERM", []string{"root-inside"},
			"inside: becoming what we are succeeds", notRoot},
		{"P18", privileges, full, "open the kernel's settings and triggers for writing", "refused, all of them", []string{"keep-caps"},
			"inside: they can be read, and a file of our own can be opened so", kernelSettings},
		{"P19", pidNS, full, "read our cgroup's path", "/", []string{"share-cgroup"},
			"outside: another path is seen of the worker", ownCgroupRoot},
	}
}

func canaryClosed(f *Fixture) Result {
	if f.CanaryPID <= 1 {
		return unclear("the fixture names no canary")
	}
	if len(cmdline(os.Getpid())) == 0 {
		return unclear("not even our own command line can be read")
	}
	if hidden(f.CanaryPID) {
		return fail("the canary is there, and only a mount option of /proc hides it")
	}
	for _, name := range []string{"cmdline", "mem", "root", "cwd", "fd"} {
		_, err := os.Stat(procFile(f.CanaryPID, name))
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if isCanary(f) {
			return fail("%s of the canary is there", name)
		}
		return unclear("another process has the canary's number")
	}
	return pass("none of five is there")
}

// canaryUntouchable makes calls that change nothing where they succeed: memory
// is read, and a process that is seized for tracing runs on until it is let go.
func canaryUntouchable(f *Fixture) Result {
	if f.CanaryPID <= 1 {
		return unclear("the fixture names no canary")
	}
	if err := errors.Join(openPid(os.Getpid()), readMemory(os.Getpid())); err != nil {
		return unclear("not even on ourselves: %v", errno(err))
	}
	for name, try := range map[string]func(int) error{"pidfd_open": openPid, "process_vm_readv": readMemory, "ptrace": seize} {
		err := try(f.CanaryPID)
		switch {
		case err == unix.ESRCH:
		case hidden(f.CanaryPID) || isCanary(f):
			return fail("%s finds the canary: %v", name, err)
		default:
			return unclear("another process has the canary's number")
		}
	}
	return pass("no such process, by three calls")
}

func openPid(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// readMemory reads a word at an address of our own: in another process of the
// same program it is there, too, and the permission is asked for before it is
// looked up.
func readMemory(pid int) error {
	var from, to uintptr
	local := unix.Iovec{Base: (*byte)(unsafe.Pointer(&to)), Len: uint64(unsafe.Sizeof(to))}
	remote := unix.RemoteIovec{Base: uintptr(unsafe.Pointer(&from)), Len: int(unsafe.Sizeof(from))}
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
	return err
}

func seize(pid int) error {
	err := unix.PtraceSeize(pid)
	if err == nil {
		unix.PtraceDetach(pid)
	}
	return err
}

// noSharedMemory asks by key: of the machine's segments, 0 finds one that is
// there and makes none.
func noSharedMemory(f *Fixture) Result {
	if f.SharedKey == 0 {
		return unclear("the fixture names no segment")
	}
	own, err := unix.SysvShmGet(f.SharedKey^1, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o600)
	if err != nil {
		return unclear("make a segment of our own: %v", err)
	}
	defer unix.SysvShmCtl(own, unix.IPC_RMID, nil)
	if again, err := unix.SysvShmGet(f.SharedKey^1, 0, 0); err != nil || again != own {
		return unclear("find our own: %v", err)
	}
	switch _, err := unix.SysvShmGet(f.SharedKey, 0, 0); err {
	case unix.ENOENT:
		return pass("absent")
	case nil:
		return fail("it can be found")
	default:
		return fail("it is there, and only %v keeps it closed", err)
	}
}

func ownHostName(f *Fixture) Result {
	if f.Nameless {
		return pass("a filter around this machine lets no box have a name of its own; its answer and the report say so")
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return unclear("read it: %v", err)
	}
	if name := unix.ByteSliceToString(u.Nodename[:]); name != f.BoxName {
		return fail("it is not the box's own")
	}
	return pass("it is %s, as in every box", f.BoxName)
}

func noTerminal(*Fixture) Result {
	if _, err := os.Stat("/dev/tty"); err != nil {
		return unclear("/dev/tty: %v", errno(err))
	}
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
		unix.Close(fd)
		return fail("it can be opened: what is written there is typed at, and read by, somebody outside")
	case unix.ENXIO:
		return pass("there is none")
	default:
		return unclear("open /dev/tty: %v", err)
	}
}

// leavesProcess starts ourselves as a canary in a session of its own. It holds
// a lock by which it is found, and a pipe that ends it if the box does not.
func leavesProcess(f *Fixture) Result {
	pipe, err := unix.Open(f.StayPipe, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return unclear("open the pipe: %v", err)
	}
	defer unix.Close(pipe)
	unix.SetNonblock(pipe, false)
	lock, err := unix.Open(f.StayLock, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return unclear("open the lock: %v", err)
	}
	defer unix.Close(lock)
	if err := unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return unclear("take the lock: %v", err)
	}
	null, err := unix.Open(os.DevNull, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return unclear("open %s: %v", os.DevNull, err)
	}
	defer unix.Close(null)
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"boxprobe", "canary", "stays"}, &syscall.ProcAttr{
		Env: []string{}, Files: []uintptr{uintptr(pipe), uintptr(null), uintptr(null), uintptr(lock)}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return unclear("start it: %v", errno(err))
	}
	if err := unix.Kill(pid, 0); err != nil {
		return unclear("it does not run: %v", err)
	}
	return pass("it runs, and will outlive us")
}

// notRoot reads the map too: in a namespace of our own, our number may be
// another outside. It tries on one thread, which is not used again: to the
// kernel each thread is who it is.
func notRoot(*Fixture) Result {
	runtime.LockOSThread()
	become := func(call, id uintptr) unix.Errno { _, _, errno := unix.RawSyscall(call, id, 0, 0); return errno }
	uid, gid := os.Getuid(), os.Getgid()
	if a, b := become(unix.SYS_SETUID, uintptr(uid)), become(unix.SYS_SETGID, uintptr(gid)); a != 0 || b != 0 {
		return unclear("not even become what we are: %s, %s", outcome(a), outcome(b))
	}
	if uid == 0 || gid == 0 || os.Geteuid() == 0 || os.Getegid() == 0 {
		return fail("user %d and group %d", uid, gid)
	}
	for _, name := range []string{"uid_map", "gid_map"} {
		text, err := os.ReadFile("/proc/self/" + name)
		if fields := strings.Fields(string(text)); err != nil || len(fields) != 3 || fields[2] != "1" {
			return fail("%s maps more than ourselves: %q", name, strings.Join(fields, " "))
		}
	}
	for name, errno := range map[string]unix.Errno{
		"setuid": become(unix.SYS_SETUID, 0), "setgid": become(unix.SYS_SETGID, 0), "setgroups": become(unix.SYS_SETGROUPS, 0),
	} {
		if errno != unix.EPERM && errno != unix.EINVAL { // no such number in our namespace
			return fail("%s to 0: %s", name, outcome(errno))
		}
	}
	return pass("user %d and group %d, and neither can be 0", uid, gid)
}

// settings are root's outside; the last two would be a namespace's own root's.
var settings = []string{
	"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/kernel/sysrq",
	"/proc/sys/vm/overcommit_memory", "/proc/sys/fs/suid_dumpable", "/proc/sys/fs/binfmt_misc/register", "/proc/sysrq-trigger",
	"/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces",
}

func kernelSettings(*Fixture) Result {
	if _, err := os.ReadFile(settings[0]); err != nil {
		return unclear("read %s: %v", settings[0], errno(err))
	}
	if r := ownFolder("/tmp"); r.Verdict != Pass {
		return r
	}
	for _, path := range settings {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0) // opened, never written
		if err == nil {
			unix.Close(fd)
			return fail("%s can be written", path)
		}
		if err != unix.EACCES && err != unix.EPERM && err != unix.EROFS && err != unix.ENOENT {
			return unclear("open %s: %v", path, err)
		}
	}
	return pass("%d are closed", len(settings))
}

func ownCgroupRoot(f *Fixture) Result {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return unclear("read it: %v", errno(err))
	}
	for line := range strings.Lines(string(text)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && parts[2] != "/" {
			return fail("the machine's tree can be seen in line %s", strconv.Quote(parts[0]))
		}
	}
	if !f.CgroupNamed {
		return pass("/ in every line; but so it is outside")
	}
	return pass("/ in every line")
}

// listed is how a set of names is told in few words.
func listed(names []string) string {
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}
