package vault

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

// Line is our end of one worker's pair.
type Line struct {
	file *os.File
	raw  syscall.RawConn
	out  wire.Order
	in   chan Packet
	quit chan struct{}
}

// Packet is what the worker sent. Err is io.EOF when it closed its end.
type Packet struct {
	Frame wire.Frame
	Files []int
	Err   error
}

// Pair makes the two ends and reads from ours, up to the first error. The
// other one is the worker's fd 5.
func Pair() (ours *Line, theirs int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	l := &Line{out: wire.Order{Epoch: wire.VaultEpoch}, in: make(chan Packet), quit: make(chan struct{})}
	err = unix.SetNonblock(pair[0], true) // so that it waits in the poller
	l.file = os.NewFile(uintptr(pair[0]), "vault")
	if err == nil {
		l.raw, err = l.file.SyscallConn()
	}
	if err != nil {
		l.file.Close()
		unix.Close(pair[1])
		return nil, 0, err
	}
	go l.read(l.in)
	return l, pair[1], nil
}

// In gives the packets, one at a time.
func (l *Line) In() <-chan Packet { return l.in }

// Close ends the pair.
func (l *Line) Close() {
	close(l.quit)
	l.file.Close()
}

func (l *Line) read(out chan<- Packet) {
	order := wire.Order{Epoch: wire.VaultEpoch}
	for {
		p := l.receive()
		if p.Err == nil {
			p.Err = order.Check(p.Frame)
		}
		select {
		case out <- p:
		case <-l.quit:
			closeFiles(p.Files)
			return
		}
		if p.Err != nil {
			return
		}
	}
}

// receive reads one packet. There is no room for more files than one may have:
// the kernel then gives none of the rest to us.
func (l *Line) receive() (p Packet) {
	text, rights := make([]byte, wire.MaxFrame), make([]byte, unix.CmsgSpace(4*wire.MaxVaultFiles))
	var n, nr, flags int
	var err error
	waited := l.raw.Read(func(fd uintptr) bool {
		n, nr, flags, _, err = unix.Recvmsg(int(fd), text, rights, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		return err != unix.EAGAIN && err != unix.EINTR
	})
	if err = errors.Join(waited, err); err != nil {
		return Packet{Err: err}
	}
	if nr > 0 {
		p.Files, p.Err = filesOf(rights[:nr])
	}
	switch {
	case n == 0:
		p.Err = io.EOF
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		p.Err = errors.New("a packet with more bytes or files than any has")
	case p.Err == nil:
		p.Frame, p.Err = wire.Decode(wire.ToSupervisor, bytes.Clone(text[:n]))
	}
	return p
}

// filesOf takes the files out of a control message.
func filesOf(rights []byte) (files []int, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	for _, m := range messages {
		fds, bad := unix.ParseUnixRights(&m)
		files, err = append(files, fds...), errors.Join(err, bad)
	}
	return files, err
}

// Send writes one frame with its files. The worker reads each answer before it
// asks again, so a full socket is no live worker.
func (l *Line) Send(a *Answer) error {
	b, err := l.out.Frame(wire.ToWorker, a.Verb, a.Keys...)
	if err != nil {
		return err
	}
	var rights []byte
	if len(a.Files) > 0 {
		rights = unix.UnixRights(a.Files...)
	}
	var sent error
	err = l.raw.Control(func(fd uintptr) {
		sent = unix.Sendmsg(int(fd), b, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	return errors.Join(err, sent)
}
