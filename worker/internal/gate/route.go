package gate

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// routeKind is the rtm_type of a route: unicast is the only one that leaves
// this machine for one other.
type routeKind uint8

const unicast routeKind = unix.RTN_UNICAST

// routeTo asks the kernel what it would do with a packet to a. An error means
// that no route leads there (ENETUNREACH, or an unreachable, prohibit or
// blackhole route), or that the kernel could not be asked; it is never taken
// for consent.
func routeTo(a netip.Addr) (routeKind, error) {
	// A socket for each question: the answer must come from the routing
	// table of this moment, and a shared one would need a lock and a way to
	// recover from a lost answer. It costs some 10 µs.
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, fmt.Errorf("socket(AF_NETLINK): %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, routeQuestion(a), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("sendto(netlink): %w", err)
	}
	var buf [4096]byte
	// The kernel has answered before sendto returns, so there is no waiting.
	n, from, err := unix.Recvfrom(fd, buf[:], unix.MSG_DONTWAIT)
	if err != nil {
		return 0, fmt.Errorf("recvfrom(netlink): %w", err)
	}
	// Any process may send to a netlink socket whose id it guesses; only the
	// kernel has id 0.
	if sa, ok := from.(*unix.SockaddrNetlink); !ok || sa.Pid != 0 {
		return 0, fmt.Errorf("netlink answer does not come from the kernel")
	}
	return routeAnswer(buf[:n])
}

// routeQuestion is RTM_GETROUTE with one attribute, RTA_DST:
// nlmsghdr (16) | rtmsg (12) | rtattr (4) | address (4 or 16).
func routeQuestion(a netip.Addr) []byte {
	dst := a.AsSlice()
	family := byte(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	size := unix.SizeofNlMsghdr + unix.SizeofRtMsg + unix.SizeofRtAttr + len(dst)
	b := make([]byte, 0, size)
	b = binary.NativeEndian.AppendUint32(b, uint32(size))
	b = binary.NativeEndian.AppendUint16(b, unix.RTM_GETROUTE)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence, port id
	b = append(b, family, byte(8*len(dst)), 0, 0, 0, 0, 0, 0)
	b = append(b, 0, 0, 0, 0) // flags
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(dst)))
	b = binary.NativeEndian.AppendUint16(b, unix.RTA_DST)
	return append(b, dst...)
}

// routeAnswer reads the type of the route, which is byte 7 of the rtmsg.
func routeAnswer(b []byte) (routeKind, error) {
	if len(b) < unix.SizeofNlMsghdr+4 {
		return 0, fmt.Errorf("netlink answer has %d bytes", len(b))
	}
	switch kind := binary.NativeEndian.Uint16(b[4:]); kind {
	case unix.NLMSG_ERROR:
		errno := int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:]))
		return 0, fmt.Errorf("no route: %w", unix.Errno(-errno))
	case unix.RTM_NEWROUTE:
		if len(b) < unix.SizeofNlMsghdr+unix.SizeofRtMsg {
			return 0, fmt.Errorf("netlink route has %d bytes", len(b))
		}
		return routeKind(b[unix.SizeofNlMsghdr+7]), nil
	default:
		return 0, fmt.Errorf("netlink answer of type %d", kind)
	}
}
