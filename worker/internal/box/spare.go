package box

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
)

// Spares are how many sockets boxentry makes and donates beside the listeners,
// by family. They are neither bound nor connected, and reach the loopback of
// the box that they were born in, whoever connects them.
type Spares struct{ V4, V6 int }

// order tells boxentry of the spares. It waits in the entry socket until there
// is a boxentry to read it.
func (k *Kit) order(s Spares) error {
	if s == (Spares{}) {
		return nil
	}
	if _, err := k.entry.Write([]byte(wire.SpareOrder(s.V4, s.V6))); err != nil {
		return reason.New(reason.System, "order spare sockets of the box: %w", err)
	}
	return nil
}

// admitSpares takes the spares over. Whoever holds a lease can send what he
// likes, and a socket of our own network in a spare's place would let the
// worker connect to the machine's loopback, not to the box's.
func (l *Live) admitSpares(files []*os.File, want Spares) error {
	got := Spares{}
	for _, f := range files {
		fd := int(f.Fd())
		switch family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); {
		case err != nil || !unconnected(fd):
			return reason.New(reason.BoxFailed, "the box donated something that is no spare socket")
		case family == unix.AF_INET:
			got.V4++
		case family == unix.AF_INET6:
			got.V6++
		}
	}
	if got.V4 != want.V4 || got.V6 != want.V6 && got.V6 != 0 { // 0: a kernel without IPv6
		return reason.New(reason.BoxFailed, "the box donated other spare sockets than it was asked for")
	}
	for _, f := range files {
		if err := elsewhere(int(f.Fd())); err != nil {
			return err
		}
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return reason.New(reason.System, "take a donated spare: %w", err)
		}
		// The description is shared with nobody: boxentry closes its copy.
		if err := unix.SetNonblock(fd, true); err != nil {
			unix.Close(fd)
			return reason.New(reason.System, "take a donated spare: %w", err)
		}
		l.Spares = append(l.Spares, os.NewFile(uintptr(fd), "spare"))
	}
	return nil
}

// unconnected tells whether fd is a TCP socket that is neither bound, listening
// nor connected.
func unconnected(fd int) bool {
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil || protocol != unix.IPPROTO_TCP {
		return false
	}
	if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || v != 0 {
		return false
	}
	if _, err := unix.Getpeername(fd); err != unix.ENOTCONN {
		return false
	}
	switch at, _ := unix.Getsockname(fd); at := at.(type) {
	case *unix.SockaddrInet4:
		return at.Port == 0
	case *unix.SockaddrInet6:
		return at.Port == 0
	}
	return false
}

// elsewhere wants a socket of another network namespace than ours. The kernel
// gives each namespace a number that no other ever had (Linux 5.14).
func elsewhere(fd int) error {
	ours, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return reason.New(reason.System, "compare network namespaces: %w", err)
	}
	defer unix.Close(ours)
	here, err := unix.GetsockoptUint64(ours, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return reason.New(reason.BoxFailed, "this kernel cannot tell network namespaces apart (Linux 5.14 can): %w", err).
			WithHint("run it on Linux 5.14 or newer, or leave net.relay and browser.debug_port out of the spec")
	}
	if there, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err != nil || there == here {
		return reason.New(reason.BoxFailed, "the box donated a socket of this machine's own network")
	}
	return nil
}
