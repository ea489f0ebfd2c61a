package lease

import (
	"encoding/json"
	"errors"
	"io"
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

// Gone tells whether Ask failed because the worker is not there, or not there
// any more. No box has come of it: another worker can be asked.
func Gone(err error) bool {
	for _, end := range []error{ErrNoWorker, io.EOF, unix.EPIPE, unix.ECONNRESET} {
		if errors.Is(err, end) {
			return true
		}
	}
	return reason.Of(err).Code == reason.WorkerStopping
}

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

// askTime bounds how long a worker may take to answer.
const askTime = 30 * time.Second

// Ask asks the worker of a run folder for a box. It waits in plain system
// calls: this process has nothing else to do and is about to become another,
// and starting Go's poller for one answer costs a tenth of a box.
func Ask(runDir string, s spec.Spec) (*Lease, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, reason.New(reason.Internal, "write the spec: %w", err)
	}
	socket, err := connect(filepath.Join(runDir, SocketName))
	if err != nil {
		return nil, ErrNoWorker
	}
	defer unix.Close(socket)
	if err := sendSpec(socket, b); err != nil {
		return nil, reason.New(reason.System, "ask the worker for a box: %w", err)
	}
	packet, files, err := readAnswer(socket)
	if err != nil {
		closeAll(files)
		return nil, reason.New(reason.System, "the worker did not answer: %w", err)
	}
	l, err := readReply(packet, files)
	if err != nil {
		closeAll(files)
	}
	return l, err
}

func connect(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	limit := unix.NsecToTimeval(askTime.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
		unix.Connect(fd, &unix.SockaddrUnix{Name: path}),
	)
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// sendSpec sends the spec as a packet, or as a sealed memfd if it is longer.
func sendSpec(socket int, b []byte) error {
	if len(b) <= maxPacket {
		return unix.Sendmsg(socket, b, nil, nil, unix.MSG_NOSIGNAL)
	}
	f, err := box.Sealed("spec", b)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Sendmsg(socket, []byte("spec"), unix.UnixRights(int(f.Fd())), nil, unix.MSG_NOSIGNAL)
}

func readAnswer(socket int) ([]byte, []*os.File, error) {
	packet, rights := make([]byte, maxPacket), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, nr, flags, _, err := unix.Recvmsg(socket, packet, rights, unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR {
		n, nr, flags, _, err = unix.Recvmsg(socket, packet, rights, unix.MSG_CMSG_CLOEXEC)
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, nil, err
	}
	files, err := unpack(rights[:nr], flags)
	if err == nil && string(packet[:n]) == inFile && len(files) > 0 {
		defer files[0].Close()
		packet, err = readFile(files[0])
		return packet, files[1:], err
	}
	return packet[:n], files, err
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

// Kit is the box for a child of this process, which the descriptors below the
// kit's own pass to.
func (l *Lease) Kit(below []*os.File) *box.Kit {
	for len(below) < box.LeaseFD-box.ChildFD {
		below = append(below, nil) // closed in the child
	}
	return &box.Kit{Bwrap: l.bwrap, Argv: l.argv, First: box.LeaseFD, Below: below, Files: l.files}
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
