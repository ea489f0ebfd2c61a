package control

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/botuser"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
	"github.com/openmausbot/botbox/supervisor/internal/reap"
	"github.com/openmausbot/botbox/supervisor/internal/vault"
)

// Config is what the boot has found out.
type Config struct {
	Mode     Mode
	Command  []string // what to run beside the worker; empty in mode Serve
	Env      []string // the container's
	Account  privdrop.Account
	Cgroup   int    // open folder of the cgroup that worker and command start in
	Program  string // path of botbox
	RunDir   string
	StateDir string
	CtlDir   string // root's own, for the FIFOs
	Drain    time.Duration
	Steps    []wire.Step
	Recheck  func()          // called now and then while the worker is ready
	Users    *botuser.Leases // of bots; nil where they have none
}

// OurCgroup is the Cgroup of children that stay in ours.
const OurCgroup = -1

// sweepWithin bounds the killing of what is left below us at the end.
const sweepWithin = time.Second

// loop is the world of the machine: everything happens on its one goroutine,
// which main has locked to the main thread.
type loop struct {
	Config
	machine
	table   reap.Table
	link    *link // to the worker of this epoch
	key     [32]byte
	vault   *vault.Vault
	lines   *Log
	service chan string
}

// Run keeps the worker alive until the end and gives the exit status.
func Run(c Config, signals *Signals, log *Log) (int, error) {
	l := &loop{Config: c, lines: log, service: serviceManager(c.Env), vault: vault.New()}
	if _, err := unix.Getrandom(l.key[:], 0); err != nil {
		return 0, fmt.Errorf("make the boot key: %w", err)
	}
	l.machine = machine{world: l, mode: c.Mode, budget: c.Drain, every: pingPeriod(c.Env), terminal: isTerminal(0)}
	l.machine.start()
	lastCheck := time.Now()
	for l.state != stopped {
		l.one(signals)
		if l.state == ready && time.Since(lastCheck) >= pingEvery {
			lastCheck = time.Now()
			l.Recheck()
		}
	}
	reap.Sweep(sweepWithin)
	return l.machine.exit()
}

// one waits for one event and hands it to the machine.
func (l *loop) one(signals *Signals) {
	var deadline <-chan time.Time
	if !l.due.IsZero() {
		t := time.NewTimer(time.Until(l.due))
		defer t.Stop()
		deadline = t.C
	}
	select {
	case sig := <-signals.other:
		l.machine.signal(sig.(syscall.Signal))
	case <-signals.child:
		for _, e := range l.table.Collect() {
			l.ended(e)
		}
	case in := <-l.link.inbox():
		l.arrived(in)
	case p := <-l.link.deposits():
		l.deposited(p)
	case d := <-l.vault.Ended():
		l.vault.Bury(d)
	case <-deadline:
		l.machine.deadline()
	}
}

func (l *loop) arrived(in inbound) {
	switch {
	case in.err == nil:
		l.machine.frame(in.frame)
	case errors.Is(in.err, io.EOF):
		l.link.frames = nil
		l.machine.closed()
	default:
		l.link.frames = nil
		l.machine.bad(in.err)
	}
}

// deposited does what the worker asks of the vault. After the first thing that
// is wrong, nothing that it has said counts.
func (l *loop) deposited(p vault.Packet) {
	answer, err := l.vault.Serve(p)
	if err == nil && answer != nil {
		err = l.link.vault.Send(answer)
	}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		l.link.hushed = true
		l.machine.closed()
	default:
		l.link.hushed = true
		l.machine.bad(fmt.Errorf("vault: %w", err))
	}
}

func (l *loop) ended(e reap.Ended) {
	switch {
	case l.link != nil && e.PID == l.link.pid:
		l.lastWords()
		l.link.close()
		l.link = nil
		l.machine.workerEnded(e.Status)
	case e.PID == l.pid:
		l.machine.commandEnded(reap.ExitStatus(e.Status))
	}
}

// lastWords hears out the worker that has ended: box.exited may still be in
// the pipe, and a box that has just started in the vault's pair. Their end is
// sure, unless a descendant holds them open.
func (l *loop) lastWords() {
	timeout := time.After(closeGrace)
	for l.link.frames != nil || !l.link.hushed {
		select {
		case in := <-l.link.inbox():
			l.arrived(in)
		case p := <-l.link.deposits():
			l.deposited(p)
		case <-timeout:
			return
		}
	}
}

func (l *loop) now() time.Time { return time.Now() }

func (l *loop) log(format string, args ...any) { l.lines.Warn(format, args...) }

func (l *loop) startWorker(epoch uint32) error {
	l.vault.Begin()
	l.Users.Begin()
	var err error
	l.link, err = startLink(l.Config, &l.table, epoch, l.key)
	return err
}

func (l *loop) send(verb wire.Verb, keyvals ...string) error {
	if l.link == nil {
		return errors.New("there is no worker")
	}
	return l.link.send(verb, keyvals...)
}

func (l *loop) signalWorker(sig syscall.Signal) {
	if l.link != nil {
		l.table.Signal(l.link.pid, sig)
	}
}

func (l *loop) startCommand() (int, error) { return startCommand(l.Config, &l.table) }

func (l *loop) signalCommand(sig syscall.Signal) { l.table.Signal(l.pid, sig) }

func (l *loop) user(f wire.Frame) error {
	if l.link == nil {
		return errors.New("there is no worker")
	}
	reply, err := l.Users.Serve(l.link.pid, f)
	if err == nil && reply.Verb != "" {
		l.tell(reply.Verb, reply.Keys...)
	}
	return err
}

func (l *loop) notify(state string) {
	select {
	case l.service <- state:
	default: // no service manager, or one that does not read
	}
}
