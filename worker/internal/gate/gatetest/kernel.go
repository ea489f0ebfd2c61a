package gatetest

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ActiveOpens is the kernel's count of TCP connections that were begun in this
// network namespace.
func ActiveOpens(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if words[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i, name := range names {
			if name == "ActiveOpens" {
				n, _ := strconv.Atoi(words[i])
				return n
			}
		}
	}
	t.Fatal("the kernel counts no connections")
	return 0
}

// Wire sees the packets of this network namespace on all its links.
type Wire struct{ fd int }

// Tap begins to look at the packets.
func Tap(t testing.TB) *Wire {
	t.Helper()
	all := int(swapped(unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	return &Wire{fd}
}

// Packets counts what was seen of TCP and UDP since the last call. The
// kernel's own messages to its neighbours do not count.
func (w *Wire) Packets(t testing.TB) (n int) {
	t.Helper()
	var buf [128]byte
	for {
		size, from, err := unix.Recvfrom(w.fd, buf[:], 0)
		if err == unix.EAGAIN {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		protocol := byte(0)
		switch kind := from.(*unix.SockaddrLinklayer).Protocol; {
		case kind == swapped(unix.ETH_P_IP) && size >= 20:
			protocol = buf[9]
		case kind == swapped(unix.ETH_P_IPV6) && size >= 40:
			protocol = buf[6]
		}
		if protocol == unix.IPPROTO_TCP || protocol == unix.IPPROTO_UDP {
			n++
		}
	}
}

// swapped gives a number in the order of the network.
func swapped(n uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, n))
}
