package control

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
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

// asAccount starts a child with the account's ids, no other group, its own
// cgroup from the first moment on, and death when the main thread, which is to
// say the supervisor, dies.
func asAccount(c Config) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: c.Account.UID, Gid: c.Account.GID},
		Pdeathsig:   syscall.SIGKILL,
		UseCgroupFD: c.Cgroup != OurCgroup,
		CgroupFD:    c.Cgroup,
	}
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
	var hand [2]int
	if err := unix.Pipe2(hand[:], unix.O_CLOEXEC); err != nil {
		line.Close()
		return nil, errors.Join(err, closeAll(to[:], from[:], []int{theirs}))
	}
	argv := []string{"botbox", "serve", "--control"}
	if c.Mode == Box {
		argv = append(argv, "--quiet") // its stderr is the command's
	}
	pid, err := table.Start(c.Program, argv, &syscall.ProcAttr{
		Env:   workerEnv(c.Env, c.Account, c.RunDir, c.StateDir),
		Files: []uintptr{0, 1, 2, uintptr(to[0]), uintptr(from[1]), uintptr(theirs), uintptr(hand[0])},
		Sys:   asAccount(c),
	})
	closeAll([]int{to[0], from[1], theirs, hand[0]})
	if err != nil {
		line.Close()
		closeAll([]int{to[1], from[0], hand[1]})
		return nil, notStartable(err)
	}
	k := &link{pid: pid, to: to[1], from: os.NewFile(uintptr(from[0]), "from-worker"), vault: line,
		order: wire.Order{Epoch: epoch}, frames: make(chan inbound), quit: make(chan struct{})}
	go k.read(epoch, k.frames)
	go handOver(hand[1], wire.EncodeHandover(wire.Handover{
		BootKey: key, Env: containerEnv(c.Env), Steps: c.Steps, SpecDir: c.SpecDir, Drain: c.Drain,
	}))
	return k, nil
}

// notStartable tells a missing program, which stays missing, from a system
// that is short of something.
func notStartable(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOEXEC) {
		return reason.New(reason.MissingProgram, "execute botbox as %s: %w", privdrop.AccountName, err)
	}
	return err
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

// handOver writes to a worker that may read late or never; its death ends it.
func handOver(fd int, b []byte) {
	unix.SetNonblock(fd, true) // so that it waits in the poller, not in a thread
	f := os.NewFile(uintptr(fd), "handover")
	f.Write(b)
	f.Close()
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

// lookPath finds a command as execvp does. Neither answer is our fault, so
// the error is the system's own: ENOENT or EACCES.
func lookPath(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	if path == "" {
		path = defaultPath
	}
	found := error(unix.ENOENT)
	for _, dir := range strings.Split(path, ":") {
		var st unix.Stat_t
		full := dir + "/" + name
		if dir == "" || unix.Stat(full, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if st.Mode&0o111 != 0 {
			return full, nil
		}
		found = unix.EACCES
	}
	return "", found
}

// notStarted is the shell's exit status for a command that did not start.
func notStarted(err error) int {
	if errors.Is(err, unix.ENOENT) {
		return reason.ExitNotFound
	}
	return reason.ExitNotRunnable
}
