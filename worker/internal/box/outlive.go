package box

import (
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
)

// returnKinds are the files that a box is taken back with, in this order, and
// its listeners and spares follow.
var returnKinds = string([]rune{wire.VaultProcess, wire.VaultProcess, wire.VaultStatus, wire.VaultRecord})

// Deposit shows the files that a later worker takes this box back with. They
// stay ours: give has to make others of them.
func (l *Live) Deposit(record *os.File, give func(kinds string, files []int) error) error {
	kinds := returnKinds + strings.Repeat(string(wire.VaultListener), len(l.Listeners)) + strings.Repeat(string(wire.VaultSpare), len(l.Spares))
	holders := []syscall.Conn{l.Engine.file, l.Init.file, l.kit.status, record}
	for _, listener := range l.Listeners {
		tcp, ok := listener.(*net.TCPListener)
		if !ok {
			return reason.New(reason.Internal, "a listener of the box is none of TCP")
		}
		holders = append(holders, tcp)
	}
	for _, spare := range l.Spares {
		holders = append(holders, spare)
	}
	var files []int
	for _, h := range holders {
		// Not by File.Fd, which makes what it shows block.
		raw, err := h.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { files = append(files, int(fd)) })
		}
		if err != nil {
			return reason.New(reason.System, "duplicate the files of the box: %w", err)
		}
	}
	err := give(kinds, files)
	runtime.KeepAlive(holders)
	return err
}

// Returned is a box whose worker died, before it is ours.
type Returned struct {
	files  []*os.File
	spares int // how many of the last ones are
}

// Return takes the files of a deposit over.
func Return(kinds string, files []*os.File) (*Returned, error) {
	r := &Returned{files: files}
	sockets, ok := strings.CutPrefix(kinds, returnKinds)
	spares := strings.TrimLeft(sockets, string(wire.VaultListener))
	r.spares = len(spares)
	if !ok || len(kinds) != len(files) || strings.Trim(spares, string(wire.VaultSpare)) != "" {
		r.Close()
		return nil, reason.New(reason.Internal, "a box came back with files of the kinds %q", kinds)
	}
	return r, nil
}

// Record reads what was written of the box.
func (r *Returned) Record() ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(r.files[3], 0, wire.MaxVaultRecord+1))
}

// Close lets go of the box, which may go on.
func (r *Returned) Close() {
	for _, f := range r.files {
		f.Close()
	}
}

// Ended tells whether the box's engine has ended.
func (r *Returned) Ended() bool { return (&Process{file: r.files[0]}).ended() }

// Kill ends the box whole.
func (r *Returned) Kill() { (&Process{file: r.files[1]}).Signal(unix.SIGKILL) }

// Facts are what is known of a box beside its files.
type Facts struct {
	Engine, Init int // process numbers, which are right as long as the box lives
	Landlock     int
	Listen       []int    // the ports of its listeners
	Disks        []string // folders
}

// Facts gives them, for somebody who takes the box back.
func (l *Live) Facts(listen []int) Facts {
	f := Facts{l.Engine.Pid, l.Init.Pid, l.Landlock, listen, nil}
	for _, d := range l.kit.Disks {
		f.Disks = append(f.Disks, d.Name())
	}
	return f
}

// Live makes the box ours. Its kit is a new one, with the disks alone. On an
// error the box is nobody's, and its files are closed.
func (r *Returned) Live(f Facts) (*Live, *Kit, error) {
	k := &Kit{First: LeaseFD, status: r.files[2]}
	l := &Live{
		Engine: &Process{f.Engine, r.files[0]}, Init: &Process{f.Init, r.files[1]}, Landlock: f.Landlock,
		kit: k, exit: make(chan int, 1),
	}
	sockets, spares := r.files[4:len(r.files)-r.spares], r.files[len(r.files)-r.spares:]
	l.Spares = spares
	err := l.listen(sockets, f.Listen)
	for _, spare := range spares {
		if err == nil {
			err = abroad(spare)
		}
	}
	if err == nil {
		err = k.openDisks(f.Disks)
	}
	for _, file := range r.files[3 : 4+len(sockets)] { // the record was read, and there are listeners of the rest
		file.Close()
	}
	if err != nil {
		l.Close() // which kills it
		return nil, nil, err
	}
	go func() {
		readStatus(k.status, nil, l.exit)
		l.Kill()
	}()
	return l, k, nil
}

// abroad is elsewhere for a file that must go on not to block.
func abroad(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return reason.New(reason.System, "take a spare back: %w", err)
	}
	if err := raw.Control(func(fd uintptr) { err = elsewhere(int(fd)) }); err != nil {
		return reason.New(reason.System, "take a spare back: %w", err)
	}
	return err
}

// openDisks opens what is looked at for a limit of the disk.
func (k *Kit) openDisks(names []string) error {
	for _, name := range names {
		fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return reason.New(reason.System, "look at %s again: %w", name, err)
		}
		k.Disks = append(k.Disks, os.NewFile(uintptr(fd), name))
	}
	return nil
}
