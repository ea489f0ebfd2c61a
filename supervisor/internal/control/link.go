package control

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/reap"
	"github.com/openmausbot/botbox/supervisor/internal/vault"
)

// link is one worker and our ends of what joins it with us. Its own ends are
// closed here, so that for both sides the end of the pipe is the other's death.
type link struct {
	pid    int
	to     int          // FIFO that we write, its fd 3
	from   *os.File     // FIFO that we read, its fd 4
	vault  *vault.Line  // SEQPACKET, its fd 5, for the listening sockets
	order  wire.Order   // of what we write
	frames chan inbound // of what it writes; nil after the first error
	hushed bool         // nothing more is taken from it into the vault
	quit   chan struct{}
}

type inbound struct {
	frame wire.Frame
	err   error
}

func (k *link) inbox() chan inbound {
	if k == nil {
		return nil
	}
	return k.frames
}

func (k *link) deposits() <-chan vault.Packet {
	if k == nil || k.hushed {
		return nil
	}
	return k.vault.In()
}

// startLink starts a worker of a new epoch.
func startLink(c Config, table *reap.Table, epoch uint32, key [32]byte) (*link, error) {
	to, err := fifo(c.CtlDir, "to-worker")
	if err != nil {
		return nil, err
	}
	from, err := fifo(c.CtlDir, "from-worker")
	if err != nil {
		return nil, errors.Join(err, closeAll(to[:]))
	}
	line, theirs, err := vault.Pair()
	if err != nil {
		return nil, errors.Join(err, closeAll(to[:], from[:]))
	}
	argv := []string{"botbox", "serve", "--control"}
	if c.Mode == Box {
		argv = append(argv, "--quiet") // its stderr is the command's
	}
	pid, err := startBotbox(c, table, argv, []int{to[0], from[1], theirs}, wire.EncodeHandover(wire.Handover{
		BootKey: key, Env: containerEnv(c.Env), Steps: c.Steps, Drain: c.Drain,
	}))
	closeAll([]int{to[0], from[1], theirs})
	if err != nil {
		line.Close()
		closeAll([]int{to[1], from[0]})
		return nil, notStartable(err)
	}
	k := &link{pid: pid, to: to[1], from: os.NewFile(uintptr(from[0]), "from-worker"), vault: line,
		order: wire.Order{Epoch: epoch}, frames: make(chan inbound), quit: make(chan struct{})}
	go k.read(epoch, k.frames)
	return k, nil
}

// fifo makes a FIFO, opens its read and its write end and takes its name away
// again: from then on it is an inherited pipe, and nobody can open it by path
// to steal frames or slip some in.
func fifo(dir, name string) (ends [2]int, err error) {
	path := dir + "/" + name
	unix.Unlink(path) // of a supervisor that was killed right here
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return ends, fmt.Errorf("make a FIFO: %w", err)
	}
	defer unix.Unlink(path)
	// The read end first: without a reader the open for writing fails. And
	// non-blocking, so that no peer can hold us in open, read or write.
	const flags = unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if ends[0], err = unix.Open(path, unix.O_RDONLY|flags, 0); err != nil {
		return ends, fmt.Errorf("open a FIFO: %w", err)
	}
	if ends[1], err = unix.Open(path, unix.O_WRONLY|flags, 0); err != nil {
		return ends, errors.Join(fmt.Errorf("open a FIFO: %w", err), closeAll(ends[:1]))
	}
	return ends, nil
}

func closeAll(lists ...[]int) error {
	for _, fds := range lists {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
	return nil
}

// read decodes what the worker writes, up to the first error.
func (k *link) read(epoch uint32, out chan<- inbound) {
	r, order := wire.NewReader(k.from), wire.Order{Epoch: epoch}
	for {
		f, err := wire.Read(r, wire.ToSupervisor)
		if err == nil {
			err = order.Check(f)
		}
		select {
		case out <- inbound{f, err}:
		case <-k.quit:
			return
		}
		if err != nil {
			return
		}
	}
}

// send writes one frame, whole or not at all. A full FIFO is an error: 64 KiB
// unread are no live worker.
func (k *link) send(verb wire.Verb, keyvals ...string) error {
	b, err := k.order.Frame(wire.ToWorker, verb, keyvals...)
	if err != nil {
		return err
	}
	_, err = unix.Write(k.to, b)
	return err
}

func (k *link) close() {
	close(k.quit)
	closeAll([]int{k.to})
	k.from.Close()
	k.vault.Close()
}
