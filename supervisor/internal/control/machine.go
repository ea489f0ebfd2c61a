package control

import (
	"fmt"
	"syscall"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/reap"
)

// Mode is what runs beside the worker.
type Mode uint8

const (
	Serve Mode = iota // nothing: serve until stopped
	Box               // `botbox run --control`, which becomes the box of the command
	Plain             // the command as the account, unboxed
)

const (
	helloWithin = 5 * time.Second
	readyWithin = 30 * time.Second
	pingEvery   = 5 * time.Second
	pingMisses  = 3
	abortGrace  = 2 * time.Second // for the stacks that SIGABRT prints
	closeGrace  = 250 * time.Millisecond
	backoffMin  = 250 * time.Millisecond
	backoffMax  = 30 * time.Second
	crashSpan   = time.Minute
	settled     = 500 * time.Millisecond // ready for so long, a worker can start
	crashLimit  = 5
)

type state uint8

const (
	starting state = iota
	ready
	replacing // it must go and has not been waited for
	backoff
	draining
	stopped
)

// world is everything that the machine can do.
type world interface {
	now() time.Time
	startWorker(epoch uint32) error
	send(verb wire.Verb, keyvals ...string) error
	signalWorker(sig syscall.Signal)
	startCommand() (pid int, err error)
	signalCommand(sig syscall.Signal)
	user(f wire.Frame) error // answers uid.lease and its like
	notify(state string)     // the service manager
	log(format string, args ...any)
}

// machine is the state × event table; its methods are the events.
type machine struct {
	world
	mode     Mode
	budget   time.Duration // from the first stop signal to the exit
	every    time.Duration // between two pings
	terminal bool          // stdin is one, so its INT and QUIT are the command's

	state  state
	due    time.Time // when deadline is called; zero is never
	epoch  uint32
	worker bool // is there, or waits to be waited for

	judged   bool // this worker is being killed: nothing that it still says counts
	greeted  bool // this worker answered hello
	isReady  bool // this worker is ready
	pings    int  // without an answer
	failures int  // in a row, for the backoff
	readyAt  time.Time
	crashes  []time.Time

	pid      int  // the command's, or what becomes its box; 0 while there is none
	launched bool // it was started

	stopSig      syscall.Signal // the first one
	killed       bool           // the budget ran out
	workerStatus int
	status       int // the command's, or a decided one
	decided      bool
	err          error
}

func (m *machine) in(d time.Duration) { m.due = m.now().Add(d) }

func (m *machine) start() {
	m.epoch++
	m.judged, m.greeted, m.isReady, m.pings = false, false, false, 0
	m.state = starting
	if err := m.startWorker(m.epoch); err != nil {
		if reason.Of(err).Code != reason.Internal {
			m.fail(err)
			return
		}
		m.log("start the worker: %v", err)
		m.crashed()
		return
	}
	m.worker = true
	m.in(helloWithin)
	m.tell(wire.Hello, "ver", wire.Version, "build", wire.Build)
	if m.mode == Box {
		m.launch() // it looks at the machine while the worker starts, and waits for it
	}
}

// tell sends a frame. A worker that does not read is as bad as one that lies.
func (m *machine) tell(verb wire.Verb, keyvals ...string) {
	if err := m.send(verb, keyvals...); err != nil {
		m.replace(syscall.SIGKILL, fmt.Sprintf("%s could not be sent: %v", verb, err))
	}
}

// frame judges one frame: each is welcome in one situation only.
func (m *machine) frame(f wire.Frame) {
	switch {
	case m.judged:
	case f.Verb == wire.HelloAck && !m.greeted:
		m.hello(f)
	case f.Verb == wire.Ready && m.greeted && !m.isReady:
		m.becameReady()
	case f.Verb == wire.Pong && m.pings > 0:
		m.pings--
		m.notify("WATCHDOG=1")
	case f.Verb == wire.Drained && m.state == draining:
	case f.Verb.OfUser() && m.greeted && m.state != replacing:
		if err := m.user(f); err != nil {
			m.bad(err)
		}
	default:
		m.bad(fmt.Errorf("%s is not expected now", f.Verb))
	}
}

// bad is a frame that could not be read, or should not have been written.
func (m *machine) bad(err error) {
	m.replace(syscall.SIGKILL, "the channel is dead: "+err.Error())
}

// closed is the end of the channel. Nearly always the worker is exiting, and
// then its status says more than a kill.
func (m *machine) closed() {
	if m.state != draining && m.state != replacing {
		m.state = replacing
		m.in(closeGrace)
	}
}

func (m *machine) replace(sig syscall.Signal, why string) {
	m.log("the worker is replaced: %s", why)
	m.signalWorker(sig)
	m.judged = m.judged || sig == syscall.SIGKILL
	if m.state == draining {
		return
	}
	m.state, m.due = replacing, time.Time{}
	if sig != syscall.SIGKILL {
		m.in(abortGrace)
	}
}

func (m *machine) hello(f wire.Frame) {
	if f.Args["ver"] != wire.Version || f.Args["build"] != wire.Build {
		m.signalWorker(syscall.SIGKILL) // it may not understand drain
		m.judged = true
		m.fail(reason.New(reason.VersionSkew, "the worker is of build %.64q, this supervisor of %q", f.Args["build"], wire.Build))
		return
	}
	m.greeted = true
	if m.state == starting {
		m.in(readyWithin)
	}
}

func (m *machine) becameReady() {
	m.isReady = true
	if m.state != starting {
		return // it crossed with drain
	}
	m.state, m.readyAt = ready, m.now()
	m.in(m.every)
	m.notify("READY=1")
	m.launch()
}

// launch starts the command, if there is one that does not run.
func (m *machine) launch() {
	if m.mode == Serve || m.launched {
		return
	}
	pid, err := m.startCommand()
	if err != nil {
		m.fail(reason.New(reason.System, "start the command: %w", err))
		return
	}
	m.launched, m.pid = true, pid
}

// commandEnded is the end of what we are here for, unless a plain command
// asks to be started again, and it alone.
func (m *machine) commandEnded(status int) {
	m.pid = 0
	if m.mode == Plain && status == reason.ExitAgain && m.state != draining {
		m.launched = false // the next worker starts it, or the next tick
		if m.state == ready {
			m.in(backoffMin)
		}
		return
	}
	if !m.decided {
		m.status, m.decided = status, true
	}
	if m.state != draining {
		m.drain()
	}
	m.settle()
}

func (m *machine) workerEnded(ws syscall.WaitStatus) {
	m.worker = false
	m.workerStatus = reap.ExitStatus(ws)
	if m.state == draining {
		m.endBox() // if there still is one, its worker did not end it
		m.settle()
		return
	}
	m.log("the worker ended with status %d", m.workerStatus)
	switch {
	case m.workerStatus == reason.ExitUsage:
		// It has said why, and the same start would end the same way.
		m.status, m.decided = reason.ExitUsage, true
		m.drain()
	default:
		m.crashed()
	}
}

// crashed plans the next start, or gives up. A worker that had been at work is
// started again at once and as often as need be: open boxes wait for it, and
// to give up would end them.
func (m *machine) crashed() {
	now := m.now()
	if m.isReady && now.Sub(m.readyAt) >= settled {
		m.failures = 0
		m.state = backoff
		m.in(0)
		return
	}
	recent := m.crashes[:0]
	for _, t := range m.crashes {
		if now.Sub(t) < crashSpan {
			recent = append(recent, t)
		}
	}
	m.crashes = append(recent, now)
	if len(m.crashes) >= crashLimit {
		m.fail(reason.New(reason.WorkerCrashes, "the worker ended %d times in a minute", crashLimit))
		return
	}
	wait := min(backoffMin<<min(m.failures, 16), backoffMax)
	m.failures++
	m.state = backoff
	m.in(wait)
}

// deadline is called when due has passed.
func (m *machine) deadline() {
	m.due = time.Time{}
	switch m.state {
	case starting:
		m.replace(syscall.SIGABRT, "it did not become ready in time")
	case ready:
		if m.pings >= pingMisses {
			m.replace(syscall.SIGABRT, "it did not answer the last pings")
			return
		}
		m.pings++
		m.in(m.every)
		m.launch()
		m.tell(wire.Ping)
	case replacing:
		m.signalWorker(syscall.SIGKILL)
	case backoff:
		m.start()
	case draining:
		m.kill()
	}
}

// signal is one of the container's.
func (m *machine) signal(sig syscall.Signal) {
	switch sig {
	case syscall.SIGINT, syscall.SIGQUIT:
		if m.terminal && m.mode != Serve {
			return // the terminal sent it to the command as well, whose it is
		}
		m.stop(sig)
	case syscall.SIGTERM:
		m.stop(sig)
	case syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2:
		if m.mode == Plain {
			m.signalCommand(sig)
		} else if m.pid != 0 && m.worker && m.state != replacing {
			m.tell(wire.BoxSignal, "pid", fmt.Sprint(m.pid), "sig", fmt.Sprint(int(sig)))
		}
	}
}

func (m *machine) stop(sig syscall.Signal) {
	if m.stopSig != 0 {
		m.kill()
		return
	}
	m.stopSig = sig
	if m.state != draining {
		m.drain()
	}
}

// drain asks everybody to end: the worker by 80 % of the budget, and what is
// left at 90 % is killed.
func (m *machine) drain() {
	was := m.state
	m.state = draining
	m.in(m.budget * 9 / 10)
	m.notify("STOPPING=1")
	if m.worker && (was == starting || was == ready) {
		m.tell(wire.Drain, "seconds", wire.Seconds(m.budget*8/10)) // it asks the engine of a box to end
	} else {
		m.signalWorker(syscall.SIGKILL)
		m.endBox()
	}
	if m.mode == Plain {
		m.signalCommand(syscall.SIGTERM)
	}
	m.settle()
}

// endBox ends the command's box at once: its bubblewrap passes nothing on.
func (m *machine) endBox() {
	if m.mode == Box {
		m.signalCommand(syscall.SIGTERM)
	}
}

func (m *machine) fail(err error) {
	if m.err == nil {
		m.err = err
	}
	if m.state == draining {
		return
	}
	m.drain()
}

func (m *machine) kill() {
	m.killed = true
	m.signalWorker(syscall.SIGKILL)
	m.signalCommand(syscall.SIGKILL)
}

func (m *machine) settle() {
	if m.state == draining && !m.worker && m.pid == 0 {
		m.state, m.due = stopped, time.Time{}
	}
}

// exit gives the status of the whole, once stopped. A stop is 0 only when
// everything ended by itself.
func (m *machine) exit() (int, error) {
	switch {
	case m.err != nil:
		return reason.Exit(m.err), m.err
	case m.decided:
		return m.status, nil
	case m.mode == Serve:
		return m.workerStatus, nil
	case m.killed:
		return reason.ExitSignalOffset + int(syscall.SIGKILL), nil
	}
	return reason.ExitSignalOffset + int(m.stopSig), nil
}
