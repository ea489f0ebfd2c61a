package posture

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// dumpable tells whether another process of the same user with the same
// capabilities could read the process's memory. The kernel shows the flag of
// one's own process only, so of another one it is found out by becoming such a
// process for a moment: the calling thread, without CAP_SYS_PTRACE.
func dumpable(pid int, s Status) (is bool, err error) {
	if pid == os.Getpid() {
		flag, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		return flag == 1, err
	}
	runtime.LockOSThread() // not unlocked after an error: such a thread must end
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var was [2]unix.CapUserData
	if err := unix.Capget(&h, &was[0]); err != nil {
		return false, fmt.Errorf("read our capabilities: %w", err)
	}
	unix.SetfsgidRetGid(s.GID[1])
	unix.SetfsuidRetUid(s.UID[1])
	now := was
	now[0].Effective, now[1].Effective = uint32(s.Permitted), uint32(s.Permitted>>32)
	if err := unix.Capset(&h, &now[0]); err != nil {
		return false, fmt.Errorf("put our capabilities down to those of process %d: %w", pid, err)
	}
	_, looked := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	err = unix.Capset(&h, &was[0])
	unix.SetfsuidRetUid(os.Geteuid())
	unix.SetfsgidRetGid(os.Getegid())
	if err != nil {
		return false, fmt.Errorf("take our capabilities back: %w", err)
	}
	runtime.UnlockOSThread()
	if looked != nil && !errors.Is(looked, unix.EACCES) {
		return false, looked
	}
	return looked == nil, nil
}
