package vault

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

// kinds are the files that the vault takes, each with the kernel's word on it.
var kinds = map[byte]struct {
	is  func(fd int) bool
	why string
}{
	wire.VaultProcess:  {isProcess, "tells when the box is over"},
	wire.VaultListener: {isListener, "is the box's way out; the next worker serves it"},
	wire.VaultSpare:    {isSpare, "is the way into the box's loopback, for its sign-in or a browser's driver"},
	wire.VaultStatus:   {isReadEnd, "tells the next worker how the box ended"},
	wire.VaultRecord:   {isRecord, "tells the next worker what the box was promised"},
}

func check(letters string, files []int) error {
	if len(letters) != len(files) || len(files) > wire.MaxVaultFiles || letters[0] != wire.VaultProcess {
		return fmt.Errorf("%d files came as %.40q", len(files), letters)
	}
	for i, fd := range files {
		kind, ok := kinds[letters[i]]
		if !ok || !kind.is(fd) {
			return fmt.Errorf("file %d of a box is no %q", i, letters[i])
		}
	}
	return nil
}

// isProcess asks for the status of a pidfd's process without taking it. Of
// another's child there is none to be had; of what is no pidfd, EBADF. A
// folder of /proc, which pidfd_send_signal would take, is none.
func isProcess(fd int) bool {
	err := unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil || err == unix.ECHILD || err == unix.EAGAIN
}

func isListener(fd int) bool {
	return has(fd, unix.SO_DOMAIN, unix.AF_INET) && isTCP(fd) && has(fd, unix.SO_ACCEPTCONN, 1)
}

func isSpare(fd int) bool {
	_, err := unix.Getpeername(fd)
	return (has(fd, unix.SO_DOMAIN, unix.AF_INET) || has(fd, unix.SO_DOMAIN, unix.AF_INET6)) && isTCP(fd) &&
		has(fd, unix.SO_ACCEPTCONN, 0) && err == unix.ENOTCONN
}

func isTCP(fd int) bool {
	return has(fd, unix.SO_TYPE, unix.SOCK_STREAM) && has(fd, unix.SO_PROTOCOL, unix.IPPROTO_TCP)
}

func has(fd, option, want int) bool {
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option)
	return err == nil && got == want
}

func isReadEnd(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return err == nil && flags&(unix.O_ACCMODE|unix.O_PATH) == unix.O_RDONLY && isOf(fd, unix.S_IFIFO, 0)
}

// isRecord wants a memfd that nobody changes any more: its size stays bounded.
func isRecord(fd int) bool {
	const sealed = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil && seals&sealed == sealed && isOf(fd, unix.S_IFREG, wire.MaxVaultRecord)
}

func isOf(fd int, kind uint32, most int64) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == kind && st.Size <= most
}
