package vault

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

// answerWithin bounds every wait for the supervisor.
const answerWithin = 5 * time.Second

// Vault is the open pair. A nil Vault keeps nothing. Keep, Note and Drop may be
// called from any goroutine, after Take.
type Vault struct {
	conn *net.UnixConn
	in   wire.Order

	mu  sync.Mutex
	out wire.Order
}

// Deposit is a box that an earlier worker left. Its files are the caller's.
type Deposit struct {
	Box, Kinds, Text string
	Files            []*os.File
}

// Close closes the files.
func (d Deposit) Close() {
	for _, f := range d.Files {
		f.Close()
	}
}

// Open takes the inherited descriptor over.
func Open(fd int) (*Vault, error) {
	f := os.NewFile(uintptr(fd), "vault")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	pair, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errors.New("the vault is no unix socket")
	}
	return &Vault{conn: pair, in: wire.Order{Epoch: wire.VaultEpoch}, out: wire.Order{Epoch: wire.VaultEpoch}}, nil
}

// Take gets everything back that is in the vault. The supervisor goes on
// holding it.
func (v *Vault) Take() (all []Deposit, err error) {
	defer func() {
		if err != nil {
			for _, d := range all {
				d.Close()
			}
			all = nil
		}
	}()
	for v != nil {
		if err := v.send(wire.VaultNext, nil); err != nil {
			return all, err
		}
		v.conn.SetReadDeadline(time.Now().Add(answerWithin))
		f, files, err := v.receive()
		d := Deposit{f.Args["box"], f.Args["kinds"], f.Args["text"], files}
		switch {
		case err == nil && f.Verb == wire.VaultHave && len(files) == len(d.Kinds):
			all = append(all, d)
			continue
		case err == nil && f.Verb == wire.VaultEnd && len(files) == 0:
			return all, v.conn.SetReadDeadline(time.Time{})
		case err == nil:
			err = fmt.Errorf("%s with %d files is not expected in the vault now", f.Verb, len(files))
		}
		d.Close()
		return all, err
	}
	return nil, nil
}

// Listen tells of boxes that there was no room for, until the pair is closed.
func (v *Vault) Listen(full func(box string)) {
	for v != nil {
		f, files, err := v.receive()
		Deposit{Files: files}.Close()
		if err != nil {
			return
		}
		if f.Verb == wire.VaultFull {
			full(f.Args["box"])
		}
	}
}

// Keep deposits duplicates of a box's files, of the kinds that the letters name.
func (v *Vault) Keep(box, kinds string, files []int) error {
	return v.send(wire.VaultKeep, files, "box", box, "kinds", kinds)
}

// Note puts a text beside the files of a box.
func (v *Vault) Note(box, text string) error {
	return v.send(wire.VaultNote, nil, "box", box, "text", text)
}

// Drop takes a box out.
func (v *Vault) Drop(box string) error { return v.send(wire.VaultDrop, nil, "box", box) }

func (v *Vault) send(verb wire.Verb, files []int, keyvals ...string) error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	b, err := v.out.Frame(wire.ToSupervisor, verb, keyvals...)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	v.conn.SetWriteDeadline(time.Now().Add(answerWithin))
	_, _, err = v.conn.WriteMsgUnix(b, rights, nil)
	return err
}

func (v *Vault) receive() (f wire.Frame, files []*os.File, err error) {
	text, rights := make([]byte, wire.MaxFrame), make([]byte, unix.CmsgSpace(4*wire.MaxVaultFiles))
	n, nr, flags, _, err := v.conn.ReadMsgUnix(text, rights)
	if err != nil {
		return f, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:nr])
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "returned"))
		}
	}
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("an answer with more bytes or files than any has")
	}
	if err == nil {
		f, err = wire.Decode(wire.ToWorker, bytes.Clone(text[:n]))
	}
	if err == nil {
		err = v.in.Check(f)
	}
	return f, files, err
}
