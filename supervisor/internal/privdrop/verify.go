package privdrop

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/posture"
)

// Verify finishes the drop in the new image and proves it: no thread differs
// from the expected posture, and no way back is open.
func Verify() (evidence string, err error) {
	h, d := capHeader(), capData(keptMask(), keptMask(), 0)
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&d[0])), 0)
	if errno != 0 {
		return "", fmt.Errorf("clear the inheritable set on every thread: %w", errno)
	}
	threads, err := posture.Threads(os.Getpid())
	if err != nil {
		return "", fmt.Errorf("read every thread's status: %w", err)
	}
	for _, got := range threads {
		if diff := posture.DiffStatus(expected(got), got); diff != nil {
			return "", errors.New(strings.Join(diff, "; "))
		}
	}
	for _, way := range waysBack() {
		if err := way.try(); err == nil {
			return "", fmt.Errorf("a way back is open: %s", way.name)
		}
	}
	return fmt.Sprintf("CapEff=%x on %d threads, %d ways back refused", keptMask(), len(threads), len(waysBack())), nil
}

// expected is the whole status that a thread must have. The caller's group
// list, umask and seccomp filter are the container's business.
func expected(got posture.Status) posture.Status {
	return posture.Status{
		Groups: got.Groups, Umask: got.Umask, Seccomp: got.Seccomp,
		Permitted: keptMask(), Effective: keptMask(), NoNewPrivs: true,
	}
}

type wayBack struct {
	name string
	try  func() error
}

// waysBack are calls that must fail. One that works ends the boot, so what it
// would change does not matter.
func waysBack() []wayBack {
	all := ^uint64(0) >> 23 // 41 capabilities up to Linux 6.18
	return []wayBack{
		{"take every capability", func() error { return capset(all, all, 0) }},
		{"take CAP_SYS_ADMIN", func() error {
			return capset(keptMask()|1<<unix.CAP_SYS_ADMIN, keptMask()|1<<unix.CAP_SYS_ADMIN, 0)
		}},
		{"fill the inheritable set, which exec would turn into permitted", func() error { return capset(keptMask(), keptMask(), all) }},
		{"raise an ambient capability", func() error {
			return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0)
		}},
		{"drop from the bounding set, which needs CAP_SETPCAP", func() error {
			return unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0)
		}},
		{"clear no_new_privs", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) }},
		{"remount /proc", func() error { return unix.Mount("", "/proc", "", unix.MS_REMOUNT, "hidepid=invisible") }},
	}
}
