package control

import (
	"bufio"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
)

// The fds that the supervisor puts in place.
const (
	fdFrom     = 3 // FIFO, frames for us
	fdTo       = 4 // FIFO, frames to the supervisor
	FdVault    = 5 // SEQPACKET pair, for listening sockets
	fdHandover = 6 // pipe, written once and closed
)

// handoverWithin bounds the wait for the handover.
const handoverWithin = 10 * time.Second

// Handover is what the supervisor hands over once, at the start.
type Handover = wire.Handover

// Channel is the open control channel. Its methods may be called from any
// goroutine.
type Channel struct {
	from    *os.File
	in      *bufio.Reader
	users   users
	greeted chan struct{} // closed when hello was answered

	mu    sync.Mutex
	to    *os.File
	out   wire.Order // the epoch is known from the first frame on
	ready bool       // Ready was called before hello came
}

// Open takes over the inherited fds and reads the handover. It fails where a
// supervisor did not start us.
func Open() (*Channel, Handover, error) {
	for fd, kind := range map[int]uint32{fdFrom: unix.S_IFIFO, fdTo: unix.S_IFIFO, FdVault: unix.S_IFSOCK, fdHandover: unix.S_IFIFO} {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != kind {
			return nil, Handover{}, reason.New(reason.Usage, "fd %d is not what a supervisor hands over", fd).
				WithHint("--control is for botbox-supervisor; start it, or botbox serve without --control")
		}
		unix.CloseOnExec(fd)
	}
	// In non-blocking mode before NewFile, so that deadlines work.
	for _, fd := range []int{fdFrom, fdTo, fdHandover} {
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, Handover{}, reason.New(reason.System, "fd %d: %w", fd, err)
		}
	}
	h, err := readHandover(os.NewFile(fdHandover, "handover"))
	if err != nil {
		return nil, Handover{}, reason.New(reason.System, "read the handover: %w", err)
	}
	c := &Channel{from: os.NewFile(fdFrom, "from-supervisor"), to: os.NewFile(fdTo, "to-supervisor"), greeted: make(chan struct{})}
	c.in = wire.NewReader(c.from)
	return c, h, nil
}

func readHandover(f *os.File) (Handover, error) {
	defer f.Close()
	if err := f.SetReadDeadline(time.Now().Add(handoverWithin)); err != nil {
		return Handover{}, err
	}
	b, err := io.ReadAll(io.LimitReader(f, wire.MaxRecords+1))
	if err != nil {
		return Handover{}, err
	}
	return wire.DecodeHandover(b)
}
