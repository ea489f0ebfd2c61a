package devtools

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// ours tells whether a connection of this machine's loopback was made by the
// worker's own user or by root.
func ours(c *net.TCPConn) bool {
	f, err := os.Open("/proc/self/net/tcp")
	if err != nil {
		return false
	}
	defer f.Close()
	uid, ok := owner(f, addrPort(c.RemoteAddr()), addrPort(c.LocalAddr()))
	return ok && (uid == 0 || uid == os.Geteuid())
}

func addrPort(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

// owner finds in /proc/net/tcp the user whose socket connects from here to
// there. A socket that nobody holds any more stands there as root's, with
// inode 0; it is nobody's.
func owner(table io.Reader, here, there netip.AddrPort) (uid int, ok bool) {
	from, to := hex(here), hex(there)
	for lines := bufio.NewScanner(table); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 10 || words[1] != from || words[2] != to {
			continue
		}
		uid, err := strconv.Atoi(words[7])
		return uid, err == nil && words[9] != "0"
	}
	return 0, false
}

// hex is how the kernel writes an address: the four bytes as a number of this
// machine.
func hex(a netip.AddrPort) string {
	b := a.Addr().Unmap().As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(b[:]), a.Port())
}
