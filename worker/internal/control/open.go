package control

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
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
	specDir string
	users   users
	greeted chan struct{} // closed when hello was answered

	mu       sync.Mutex
	to       *os.File
	out      wire.Order // the epoch is known from the first frame on
	ready    bool       // Ready was called before hello came
	starting bool       // a box.start is not answered yet
	box      string     // the box that box.start made
	exits    []exit     // reported while starting
}

type exit struct {
	box  string
	code int
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
	c := &Channel{from: os.NewFile(fdFrom, "from-supervisor"), to: os.NewFile(fdTo, "to-supervisor"), specDir: h.SpecDir, greeted: make(chan struct{})}
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

// readSpec reads the start file that a frame named. The supervisor wrote it,
// yet nothing is followed out of the folder and nothing but a plain file of
// bounded size is read.
func readSpec(dir, name string) (wire.StartSpec, error) {
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return wire.StartSpec{}, fmt.Errorf("open the spec folder: %w", err)
	}
	defer unix.Close(at)
	// O_NONBLOCK: the open of a planted FIFO must not hang.
	fd, err := unix.Openat2(at, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return wire.StartSpec{}, fmt.Errorf("open the start file: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return wire.StartSpec{}, err
	}
	if !st.Mode().IsRegular() || st.Sys().(*syscall.Stat_t).Nlink != 1 || st.Size() > wire.MaxStartSpec {
		return wire.StartSpec{}, fmt.Errorf("the start file is not a plain file of at most %d bytes", wire.MaxStartSpec)
	}
	b, err := io.ReadAll(io.LimitReader(f, wire.MaxStartSpec+1))
	if err != nil {
		return wire.StartSpec{}, err
	}
	return wire.DecodeStartSpec(b)
}
