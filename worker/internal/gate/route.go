package gate

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// routeKind is the rtm_type of a route: unicast is the only one that leaves
// this machine for one other.
type routeKind uint8

const unicast routeKind = unix.RTN_UNICAST

// routeTo asks the kernel what it would do with a packet to a, by the routing
// table of this moment. An error means that no route leads there (ENETUNREACH,
// or an unreachable, prohibit or blackhole route), or that the kernel could
// not be asked; it is never taken for consent.
func routeTo(a netip.Addr) (routeKind, error) {
	fd, err := questioner()
	if err != nil {
		return 0, err
	}
	answer, err := ask(fd, a)
	if err != nil {
		// Whatever went wrong, an answer may be in it still.
		unix.Close(fd)
		return 0, err
	}
	select {
	case questioners <- fd:
	default:
		unix.Close(fd)
	}
	return routeAnswer(answer)
}

// questioners are sockets that nobody asks through at the moment. A socket for
// each question would be twice the system calls.
var questioners = make(chan int, 4)

func questioner() (int, error) {
	select {
	case fd := <-questioners:
		return fd, nil
	default:
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, fmt.Errorf("socket(AF_NETLINK): %w", err)
	}
	// The kernel has id 0. A socket that is connected to it takes nothing from
	// anybody else, who might guess its id.
	if err := unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("connect(netlink): %w", err)
	}
	return fd, nil
}

var questions atomic.Uint32

// ask puts one question and takes the answer to it, no other.
func ask(fd int, a netip.Addr) ([]byte, error) {
	question := routeQuestion(a)
	seq := questions.Add(1)
	binary.NativeEndian.PutUint32(question[8:], seq)
	if _, err := unix.Write(fd, question); err != nil {
		return nil, fmt.Errorf("write(netlink): %w", err)
	}
	// The rest of an answer is cut off: what kind it is stands in its head.
	buf := make([]byte, 64)
	// The kernel has answered before write returns, so there is no waiting.
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, fmt.Errorf("read(netlink): %w", err)
	}
	if n < unix.SizeofNlMsghdr || binary.NativeEndian.Uint32(buf[8:]) != seq {
		return nil, fmt.Errorf("netlink answer is not to this question")
	}
	return buf[:n], nil
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
