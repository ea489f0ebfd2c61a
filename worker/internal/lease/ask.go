package lease

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/spec"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// Lease is a box that waits for somebody to become it.
type Lease struct {
	Answer turn.Answer
	bwrap  string
	argv   []string
	files  []*os.File
}

// ErrNoWorker says that no worker of ours listens in that run folder.
var ErrNoWorker = errors.New("no worker listens there")

// Alive tells whether somebody listens on a socket of either kind.
func Alive(path string) bool {
	for _, kind := range []string{"unixpacket", "unix"} {
		if conn, err := net.DialUnix(kind, nil, &net.UnixAddr{Name: path, Net: kind}); err == nil {
			conn.Close()
			return true
		}
	}
	return false
}

// Ask asks the worker of a run folder for a box.
func Ask(runDir string, s spec.Spec) (*Lease, error) {
	path := filepath.Join(runDir, SocketName)
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, ErrNoWorker
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if err := sendSpec(conn, s); err != nil {
		return nil, reason.New(reason.System, "ask the worker for a box: %w", err)
	}
	packet := make([]byte, maxPacket)
	n, files, err := receive(conn, packet)
	if err == nil && string(packet[:n]) == inFile && len(files) > 0 {
		packet, err = readFile(files[0])
		n, files = len(packet), files[1:]
	}
	if err != nil {
		closeAll(files)
		return nil, reason.New(reason.System, "the worker did not answer: %w", err)
	}
	l, err := readReply(packet[:n], files)
	if err != nil {
		closeAll(files)
	}
	return l, err
}

// sendSpec sends the spec as a sealed memfd: it may be larger than a packet.
func sendSpec(conn *net.UnixConn, s spec.Spec) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := box.Sealed("spec", b)
	if err != nil {
		return err
	}
	defer f.Close()
	_, _, err = conn.WriteMsgUnix([]byte("spec"), unix.UnixRights(int(f.Fd())), nil)
	return err
}

func readReply(packet []byte, files []*os.File) (*Lease, error) {
	var r reply
	if err := json.Unmarshal(packet, &r); err != nil {
		return nil, reason.New(reason.Internal, "the worker's answer cannot be read")
	}
	if r.Error != nil {
		code := reason.Code(r.Error.Code)
		if _, known := reason.Lookup(code); !known {
			code = reason.Internal
		}
		return nil, reason.New(code, "%s", r.Error.Message).WithHint("%s", r.Error.Hint)
	}
	if r.Answer == nil || r.Answer.Build != wire.Build {
		return nil, reason.New(reason.VersionSkew, "the worker comes from another build than this botbox (%s)", wire.Build)
	}
	if len(files) == 0 || len(files) != r.Files || len(r.Argv) == 0 {
		return nil, reason.New(reason.Internal, "the worker's answer lacks files of the box")
	}
	return &Lease{Answer: *r.Answer, bwrap: r.Bwrap, argv: r.Argv, files: files}, nil
}

// Become turns this process into the box. It returns only if it cannot.
func (l *Lease) Become(tty bool) error {
	if err := l.place(); err != nil {
		return reason.New(reason.System, "place the files of the box: %w", err)
	}
	if tty {
		// They belong to the engine, which has the terminal. bubblewrap's outer
		// process would die of them and take the box along; boxentry makes
		// them the engine's again.
		signal.Ignore(syscall.SIGINT, syscall.SIGQUIT)
	}
	// The environment is empty: bubblewrap's own can be read in the box.
	err := syscall.Exec(l.bwrap, l.argv, []string{})
	return reason.New(reason.BoxFailed, "start %s: %w", l.bwrap, err)
}

// place gives each file the number that the command line names, and lets
// nothing else that this process inherited through.
func (l *Lease) place() error {
	n := len(l.files)
	above := box.LeaseFD + n
	high := make([]int, n)
	for i, f := range l.files { // out of the way first: numbers may overlap
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, above)
		if err != nil {
			return err
		}
		high[i] = fd
	}
	for i, fd := range high {
		if err := unix.Dup3(fd, box.LeaseFD+i, 0); err != nil {
			return err
		}
	}
	return unix.CloseRange(uint(above), ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
}
