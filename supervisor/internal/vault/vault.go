package vault

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

// Vault holds the files of boxes, across workers. All of its methods are for
// one goroutine.
type Vault struct {
	room  int // files that there is room for
	held  int
	boxes map[string]*Deposit
	ended chan *Deposit
	due   []string // boxes that the worker of now has not been given yet
	given bool     // it has been told that there are no more
}

// Deposit is one box.
type Deposit struct {
	box, kinds, text string
	files            []int
	process          *os.File // another of the first file, for the poller
	gone             chan struct{}
}

// Answer is a frame for the worker, with files of ours.
type Answer struct {
	Verb  wire.Verb
	Keys  []string // names and values in turns
	Files []int
}

// New makes an empty vault. Half of the files that this process may open are
// its room at most; the rest is for the work of the supervisor itself.
func New() *Vault {
	v := &Vault{room: wire.MaxDeposits * wire.MaxVaultFiles, boxes: map[string]*Deposit{}, ended: make(chan *Deposit)}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur/2 < uint64(v.room) {
		v.room = int(limit.Cur / 2)
	}
	return v
}

// Begin turns to a new worker, which is given back every box.
func (v *Vault) Begin() {
	v.due, v.given = v.due[:0], false
	for box := range v.boxes {
		v.due = append(v.due, box)
	}
}

// Ended tells of boxes whose first process has ended. Bury forgets them.
func (v *Vault) Ended() <-chan *Deposit { return v.ended }

// Bury forgets a box that has ended.
func (v *Vault) Bury(d *Deposit) {
	if v.boxes[d.box] == d { // and not one that was dropped meanwhile
		v.drop(d.box)
	}
}

// Serve does what one packet asks for. The files are the vault's from here on.
// An error means that the worker is not to be trusted any more.
func (v *Vault) Serve(p Packet) (answer *Answer, err error) {
	keep := p.Err == nil && p.Frame.Verb == wire.VaultKeep
	if !keep {
		closeFiles(p.Files)
	}
	box := p.Frame.Args["box"]
	switch {
	case p.Err != nil:
		return nil, p.Err
	case !keep && len(p.Files) > 0:
		return nil, fmt.Errorf("%s came with files", p.Frame.Verb)
	case keep:
		return v.keep(box, p.Frame.Args["kinds"], p.Files)
	case p.Frame.Verb == wire.VaultNext && !v.given:
		return v.next(), nil
	case p.Frame.Verb == wire.VaultDrop: // of a box that we dropped ourselves, perhaps
		v.drop(box)
		return nil, nil
	case p.Frame.Verb == wire.VaultNote:
		if d := v.boxes[box]; d != nil {
			d.text = p.Frame.Args["text"]
		}
		return nil, nil
	}
	return nil, fmt.Errorf("%s is not expected in the vault now", p.Frame.Verb)
}

// next gives the worker one more of the boxes that it has not been given.
func (v *Vault) next() *Answer {
	for len(v.due) > 0 {
		d := v.boxes[v.due[0]]
		v.due = v.due[1:]
		if d != nil {
			return &Answer{wire.VaultHave, []string{"box", d.box, "kinds", d.kinds, "text", d.text}, d.files}
		}
	}
	v.given = true
	return &Answer{Verb: wire.VaultEnd}
}

func (v *Vault) keep(box, kinds string, files []int) (*Answer, error) {
	err := check(kinds, files)
	if err == nil && v.boxes[box] != nil {
		err = fmt.Errorf("the box %.40q is in the vault already", box)
	}
	if err != nil {
		closeFiles(files)
		return nil, err
	}
	full := len(v.boxes) == wire.MaxDeposits || v.held+len(files)+1 > v.room
	d := &Deposit{box: box, kinds: kinds, text: wire.NoNote, files: files, gone: make(chan struct{})}
	if full || d.watch(v.ended) != nil {
		closeFiles(files)
		return &Answer{Verb: wire.VaultFull, Keys: []string{"box", box}}, nil
	}
	v.boxes[box] = d
	v.held += len(files) + 1
	return nil, nil
}

func (v *Vault) drop(box string) {
	d := v.boxes[box]
	if d == nil {
		return
	}
	delete(v.boxes, box)
	v.held -= len(d.files) + 1
	close(d.gone)
	d.process.Close()
	closeFiles(d.files)
}

// watch tells when the first process of the box has ended: its pidfd is
// readable then. It waits in the poller and costs no thread.
func (d *Deposit) watch(ended chan<- *Deposit) error {
	fd, err := unix.FcntlInt(uintptr(d.files[0]), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or the poller would not take it
		unix.Close(fd)
		return err
	}
	d.process = os.NewFile(uintptr(fd), "pidfd")
	raw, err := d.process.SyscallConn()
	if err != nil {
		d.process.Close()
		return err
	}
	go func() {
		raw.Read(func(fd uintptr) bool {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(poll, 0)
			return n == 1 || err != nil && err != unix.EINTR
		})
		select {
		case ended <- d:
		case <-d.gone:
		}
	}()
	return nil
}

func closeFiles(files []int) {
	for _, fd := range files {
		unix.Close(fd)
	}
}
