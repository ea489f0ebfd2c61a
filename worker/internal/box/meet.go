package box

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
)

// Live is a box that has been built and whose engine waits for Go.
type Live struct {
	Engine    *Process // the process that becomes the engine
	Init      *Process // PID 1 of the box: when it dies, all of it dies
	Listeners []net.Listener
	Spares    []*os.File // sockets of the box that are not connected, for whoever closes them
	Landlock  int        // the version of it that the engine is confined by, 0 = none

	kit  *Kit
	met  chan struct{} // closed when Meet is over
	exit chan int      // bubblewrap's own word on how it ended; closed without one
}

// Meet waits until boxentry has donated a listener for each port of the plan,
// and its spares. It takes the kit over: on an error nothing of it is left open.
func (k *Kit) Meet(p *Plan, within time.Duration) (*Live, error) {
	l := &Live{kit: k, met: make(chan struct{}), exit: make(chan int, 1)}
	child := make(chan int, 1)
	go func() {
		readStatus(k.status, child, l.exit)
		// bubblewrap is gone. If it was killed while it built the box, PID 1
		// has not yet asked to die with it, and nobody else would end the box.
		<-l.met
		l.Kill()
	}()
	err := l.meet(child, p, within)
	close(l.met)
	if err != nil {
		l.Close()
		k.endHolders()
		return nil, err
	}
	return l, nil
}

func (l *Live) meet(child <-chan int, p *Plan, within time.Duration) error {
	deadline := time.Now().Add(within)
	l.kit.entry.SetReadDeadline(deadline)
	h := l.kit.holder
	if h != nil {
		defer h.Close()
		go func() {
			if h.Wait() == nil {
				l.kit.entry.SetReadDeadline(time.Now())
			}
		}()
	}
	packet := make([]byte, 256)
	rights := make([]byte, unix.CmsgSpace(2*4*wire.MaxDonated)+unix.CmsgSpace(unix.SizeofUcred))
	n, nr, flags, _, err := l.kit.entry.ReadMsgUnix(packet, rights)
	var files []*os.File
	var sender *unix.Ucred
	if nr > 0 {
		files, sender = readRights(rights[:nr])
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(deadline):
		return reason.New(reason.BoxFailed, "the box was not built in %v", within)
	case err != nil || n == 0 || h != nil && h.ended():
		// A parent may have died before bubblewrap asked to die with it. Then
		// nobody would end the box.
		return reason.New(reason.BoxFailed, "bubblewrap ended before the engine could start")
	case flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0 || sender == nil:
		return reason.New(reason.BoxFailed, "what the box sent first is malformed")
	}
	if err := l.admit(string(packet[:n]), files, p); err != nil {
		return err
	}
	if err := l.identify(sender, child); err != nil {
		return err
	}
	err = l.kit.user.checkBox(l)
	if err == nil {
		err = stand(l.kit.feet, l.Engine.Pid)
	}
	if err != nil {
		if l.kit.First == LeaseFD { // the asker hears of it in no other way
			l.Refuse(err)
		}
		return err
	}
	return nil
}

// readRights takes files and the sender's identity out of a control message.
func readRights(b []byte) (files []*os.File, sender *unix.Ucred) {
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, nil
	}
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			for _, fd := range fds {
				unix.CloseOnExec(fd)
				files = append(files, os.NewFile(uintptr(fd), "listener"))
			}
		}
		if cred, err := unix.ParseUnixCredentials(&m); err == nil {
			sender = cred
		}
	}
	return files, sender
}

// admit checks the donation and takes the listeners over. Whoever holds a lease
// can send what he likes: a listener is one only if the kernel says so, and
// only on the very port that was asked for.
func (l *Live) admit(packet string, files []*os.File, p *Plan) error {
	d, err := wire.ParseDonation(packet)
	if err != nil {
		return reason.New(reason.BoxFailed, "%w", err)
	}
	if d.Build != wire.Build {
		return reason.New(reason.VersionSkew, "boxentry is of build %s, this is %s", d.Build, wire.Build)
	}
	if l.Landlock = d.Landlock; l.Landlock != Landlock() { // of one kernel, and what the asker was told
		return reason.New(reason.BoxFailed, "Landlock is of version %d in the box and %d outside", d.Landlock, Landlock())
	}
	if d.Listeners != len(p.Listen) || d.Listeners+d.Spares != len(files) {
		return reason.New(reason.BoxFailed, "%w", wire.ErrDonation)
	}
	if err := l.admitSpares(files[d.Listeners:], p.Spares); err != nil {
		return err
	}
	return l.listen(files[:d.Listeners], p.Listen)
}

// listen takes listeners over, one for each port.
func (l *Live) listen(files []*os.File, ports []int) error {
	if len(files) != len(ports) {
		return reason.New(reason.BoxFailed, "%w", wire.ErrDonation)
	}
	for i, f := range files {
		if v, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || v != 1 {
			return reason.New(reason.BoxFailed, "the box donated something that is no listener")
		}
		listener, err := net.FileListener(f)
		if err != nil {
			return reason.New(reason.System, "take a donated listener: %w", err)
		}
		l.Listeners = append(l.Listeners, listener)
		at, _ := listener.Addr().(*net.TCPAddr)
		if at == nil || at.Port != ports[i] || !at.IP.IsLoopback() {
			return reason.New(reason.BoxFailed, "the box donated a listener of another port")
		}
	}
	return nil
}

// identify holds on to the engine's process and to the box's PID 1. boxentry
// waits for our word, so its pid cannot have been given to another process.
func (l *Live) identify(sender *unix.Ucred, child <-chan int) error {
	want := os.Geteuid()
	if l.kit.user != nil {
		want = l.kit.user.UID
	}
	if int(sender.Uid) != want || sender.Pid <= 1 {
		return reason.New(reason.BoxFailed, "the box's first packet came from another user's process")
	}
	var err error
	if l.Engine, err = openProcess(int(sender.Pid)); err != nil {
		return reason.New(reason.BoxFailed, "the engine's process is gone: %w", err)
	}
	select {
	case pid := <-child:
		// bubblewrap counts in the PID namespace of whoever asked, which may be
		// below ours. Another bot's processes are not shown to us; there its
		// word is looked at in checkBox.
		if parent, err := parentOf(l.Engine.Pid); err == nil {
			pid = parent
		}
		if l.Init, err = openProcess(pid); err != nil {
			return reason.New(reason.BoxFailed, "the box's first process is gone: %w", err)
		}
	case <-time.After(5 * time.Second):
		return reason.New(reason.BoxFailed, "bubblewrap did not say which process it started")
	}
	return nil
}

// Go lets boxentry become the engine, which can write in these folders and, if
// the kernel has Landlock, nowhere else.
func (l *Live) Go(writable []string) error { return l.answer(wire.Go(writable)) }

// Refuse lets boxentry tell why there is no box, on the box's own stderr, and
// returns when it has.
func (l *Live) Refuse(err error) {
	f := reason.FaultOf(err)
	if l.answer(wire.No(wire.Refusal{Code: f.Code, Text: f.Message, Hint: f.Hint})) == nil {
		select {
		case <-l.exit:
		case <-time.After(time.Second): // it is dead or stopped: whoever holds a lease can do that
		}
	}
}

func (l *Live) answer(packet string) error {
	if _, err := l.kit.entry.Write([]byte(packet)); err != nil {
		return reason.New(reason.BoxFailed, "the box ended before the engine could start: %w", err)
	}
	return l.kit.entry.Close()
}

// Kill ends the box whole: a dead PID 1 takes its namespace with it.
func (l *Live) Kill() {
	if l.Init != nil {
		l.Init.Signal(unix.SIGKILL)
	}
	if l.Engine != nil {
		l.Engine.Signal(unix.SIGKILL)
	}
}

// lastWord bounds the wait for bubblewrap when the engine has ended: one that
// its caller has stopped (Control-Z, SIGSTOP) says nothing until it goes on.
const lastWord = 2 * time.Second

// Exit waits for bubblewrap's last word: the engine's exit status, 128+n for a
// signal, or 137 when bubblewrap itself was killed or stopped and could not say.
func (l *Live) Exit() int {
	select {
	case code, ok := <-l.exit:
		if ok {
			return code
		}
	case <-time.After(lastWord):
	}
	return reason.ExitSignalOffset + int(unix.SIGKILL)
}

// Close kills what is left and frees every file.
func (l *Live) Close() {
	l.Kill()
	for _, listener := range l.Listeners {
		listener.Close()
	}
	for _, f := range l.Spares {
		f.Close()
	}
	l.Engine.Close()
	l.Init.Close()
	l.kit.Close()
}
