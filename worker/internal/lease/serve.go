package lease

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/spec"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// SocketName is the lease socket's name in OMB_RUN_DIR.
const SocketName = "lease.sock"

// maxPacket is what a spec may be without a memfd, and an answer in all: a
// SEQPACKET message must fit into a socket's buffer.
const maxPacket = 128 << 10

// askWithin bounds how long an asker may take to say what it wants.
const askWithin = 10 * time.Second

// reply is the answer's packet: the kit's command line beside what the asker
// is told, or an error instead of both.
type reply struct {
	Answer *turn.Answer  `json:"answer,omitempty"`
	Bwrap  string        `json:"bwrap,omitempty"`
	Argv   []string      `json:"argv,omitempty"`
	Files  int           `json:"files,omitempty"`
	Error  *reason.Fault `json:"error,omitempty"`
}

func refusal(err error) reply {
	f := reason.FaultOf(err)
	return reply{Error: &f}
}

// Listen makes the lease socket in the run folder.
func Listen(runDir string) (*net.UnixListener, error) {
	return ListenAt("unixpacket", filepath.Join(runDir, SocketName))
}

// ListenAt makes a socket of the worker's, which its own user alone can reach.
func ListenAt(kind, path string) (*net.UnixListener, error) {
	l, err := net.ListenUnix(kind, &net.UnixAddr{Name: path, Net: kind})
	if err != nil {
		return nil, reason.New(reason.System, "listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, reason.New(reason.System, "close %s to others: %w", path, err)
	}
	return l, nil
}

// Serve answers askers until the listener is closed.
func Serve(l *net.UnixListener, r *turn.Runner) error {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of files for a moment: boxes end
			continue
		}
		go func() {
			defer conn.Close()
			serveOne(conn, r)
		}()
	}
}

func serveOne(conn *net.UnixConn, r *turn.Runner) {
	conn.SetReadDeadline(time.Now().Add(askWithin))
	asker, stranger := peer(conn)
	// A stranger is heard out too: the kernel drops the answer to a caller
	// whose packet was never read.
	s, err := readSpec(conn)
	switch {
	case stranger != nil:
		err = stranger
	case err != nil:
		r.Refuse(spec.Spec{}, err) // nothing of it is good for a log
	default:
		err = lease(conn, r, s, asker)
	}
	if err != nil {
		send(conn, refusal(err), nil)
	}
}

// lease prepares one box and gives its kit away to the process that asked.
func lease(conn *net.UnixConn, r *turn.Runner, s spec.Spec, asker int) error {
	t, answer, err := r.Prepare(s, turn.Way{First: box.LeaseFD, Asker: asker})
	if err != nil {
		return err
	}
	files := t.Kit.Files
	err = send(conn, reply{Answer: &answer, Bwrap: t.Kit.Bwrap, Argv: t.Kit.Argv, Files: len(files)}, files)
	if err != nil {
		t.Abandon()
		return reason.New(reason.System, "hand the box over: %w", err)
	}
	t.Kit.Release()
	go t.Attend()
	return nil
}

// CheckPeer lets the worker's own user and root in.
func CheckPeer(conn *net.UnixConn) error {
	_, err := peer(conn)
	return err
}

// peer gives the pid of a caller that CheckPeer lets in.
func peer(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, reason.New(reason.System, "see who is asking: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || credErr != nil {
		return 0, reason.New(reason.System, "see who is asking: %w", errors.Join(err, credErr))
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return 0, reason.New(reason.NotYours, "this worker belongs to another user")
	}
	return int(cred.Pid), nil
}

// readSpec takes the spec out of the packet, or out of the memfd beside it.
func readSpec(conn *net.UnixConn) (spec.Spec, error) {
	packet := make([]byte, maxPacket)
	n, files, err := receive(conn, packet)
	defer closeAll(files)
	switch {
	case err != nil:
		return spec.Spec{}, reason.New(reason.BadSpec, "the spec is not usable: %w", err)
	case len(files) > 1:
		return spec.Spec{}, reason.New(reason.BadSpec, "the spec is not usable: more than one file came with it")
	case len(files) == 0:
		return spec.Decode(packet[:n])
	}
	b, err := readFile(files[0])
	if err != nil {
		return spec.Spec{}, reason.New(reason.BadSpec, "the spec is not usable: %w", err)
	}
	return spec.Decode(b)
}

// readFile reads a spec's file. Only a sealed memfd is taken: any other file
// could block the worker or change while it is read.
func readFile(f *os.File) ([]byte, error) {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_WRITE == 0 {
		return nil, errors.New("its file is not a sealed memfd")
	}
	return io.ReadAll(io.NewSectionReader(f, 0, spec.MaxBytes+1))
}

// inFile is the packet of an answer that is longer than one: the answer is in
// the first of its files.
const inFile = "in-file"

func send(conn *net.UnixConn, r reply, files []*os.File) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(b) > maxPacket {
		f, err := box.Sealed("answer", b)
		if err != nil {
			return err
		}
		defer f.Close()
		b, files = []byte(inFile), append([]*os.File{f}, files...)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	conn.SetWriteDeadline(time.Now().Add(askWithin))
	_, _, err = conn.WriteMsgUnix(b, rights, nil)
	return err
}

// maxFiles is the kernel's own bound on one message (SCM_MAX_FD).
const maxFiles = 253

// receive reads one whole packet with its files.
func receive(conn *net.UnixConn, packet []byte) (int, []*os.File, error) {
	rights := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, nr, flags, _, err := conn.ReadMsgUnix(packet, rights)
	if err != nil {
		return 0, nil, err
	}
	files, err := unpack(rights[:nr], flags)
	return n, files, err
}

// unpack takes the files out of a packet's control message.
func unpack(rights []byte, flags int) ([]*os.File, error) {
	files, err := parseRights(rights)
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("it is longer than a packet; send it as a memfd")
	}
	return files, err
}

func parseRights(b []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "leased"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
