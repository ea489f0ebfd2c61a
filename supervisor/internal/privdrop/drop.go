package privdrop

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/posture"
)

// RefuseCgo fails in a build that links cgo, where Go cannot make a system
// call on every thread. It asks the runtime, for that is what matters.
func RefuseCgo() error {
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0); errno != 0 {
		return fmt.Errorf("this build links cgo and cannot drop privileges on every thread: %w", errno)
	}
	return nil
}

// Drop prepares the calling thread, which must be the one that executes next.
// It gives what it read back. Capabilities in use stay until the exec.
func Drop() (evidence string, err error) {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return "", fmt.Errorf("clear the ambient set: %w", err)
	}
	// Before the bounding set: the kernel lets nothing into the inheritable
	// set that the bounding set lacks. This also throws out what a container
	// runtime left there (CVE-2022-24769, CVE-2022-29162).
	h := capHeader()
	var now [2]unix.CapUserData
	if err := unix.Capget(&h, &now[0]); err != nil {
		return "", fmt.Errorf("read the capabilities: %w", err)
	}
	permitted := uint64(now[0].Permitted) | uint64(now[1].Permitted)<<32
	if permitted&keptMask() != keptMask() {
		return "", fmt.Errorf("the permitted set %x lacks some of %x", permitted, keptMask())
	}
	if err := capset(permitted, permitted, keptMask()); err != nil {
		return "", fmt.Errorf("set the inheritable set: %w", err)
	}
	if err := emptyBounding(); err != nil {
		return "", err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "", fmt.Errorf("set no_new_privs: %w", err)
	}
	return readBack()
}

func emptyBounding() error {
	for c := 0; c < 64; c++ {
		set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if err != nil {
			return nil // EINVAL: this kernel has no more capabilities
		}
		if set == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	return nil
}

func readBack() (string, error) {
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return "", fmt.Errorf("read back: %w", err)
	}
	s, err := posture.ParseStatus(string(text))
	if err != nil {
		return "", err
	}
	evidence := fmt.Sprintf("CapInh=%x CapBnd=%x CapAmb=%x NoNewPrivs=%t", s.Inheritable, s.Bounding, s.Ambient, s.NoNewPrivs)
	if s.Inheritable != keptMask() || s.Bounding != 0 || s.Ambient != 0 || !s.NoNewPrivs {
		return "", fmt.Errorf("read back %s", evidence)
	}
	return evidence, nil
}
