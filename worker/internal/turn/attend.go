package turn

import (
	"log/slog"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/events"
	"github.com/openmausbot/botbox/worker/internal/journal"
)

// Attend stays with the box until it has ended, and leaves nothing of it
// behind. It returns the engine's exit status; an error means that no engine
// ran.
func (t *Turn) Attend() (int, error) {
	defer t.finish()
	live, err := t.Kit.Meet(t.Plan, meetWithin)
	if err != nil {
		return 0, t.runner.Refuse(t.Spec, err)
	}
	defer func() { t.group.Close() }() // when nothing is left in it
	defer live.Close()
	serving := t.attach(live)
	defer serving.close()
	// Runs first of all, so that a token dies with its engine and not with
	// what is still to be tidied up.
	defer t.runner.Broker.Revoke(t.ID)
	err = t.bound(live)
	if err == nil {
		err = t.measure(live)
	}
	if err != nil {
		if t.Kit.First == box.LeaseFD { // the asker hears of it in no other way
			live.Refuse(err)
		}
		return 0, t.runner.Refuse(t.Spec, err)
	}
	t.deposit(live)
	defer t.withdraw()
	if err := live.Go(t.Plan.Writable); err != nil {
		return 0, t.runner.Refuse(t.Spec, err)
	}
	t.live = live
	close(t.ready)
	t.runner.Count("boxed")
	return t.run(live, journal.BoxStarted), nil
}

// run stays with a box whose engine runs, and gives its exit status.
func (t *Turn) run(live *box.Live, since journal.Event) int {
	t.log(since, slog.Int("pid", live.Engine.Pid), slog.Int("landlock", live.Landlock))
	t.record(events.Event{Event: since.Name, Life: &events.Life{Pid: live.Engine.Pid}})
	t.learns()
	defer t.watch()()
	live.Engine.Wait()
	t.runner.Broker.Revoke(t.ID)
	code := live.Exit()
	t.conclude(code)
	return code
}

// finish forgets the turn, whatever became of it.
func (t *Turn) finish() {
	t.debug.Close()
	t.runner.Broker.Revoke(t.ID)
	t.runner.forget(t)
	close(t.ended)
}

// Abandon gives up a turn that was prepared and never attended.
func (t *Turn) Abandon() {
	t.Kit.Close()
	t.finish()
}

func (t *Turn) log(e journal.Event, attrs ...slog.Attr) {
	e.Log(t.runner.Log, append([]slog.Attr{
		slog.String("box_id", t.ID), slog.String("bot_id", t.Spec.Bot),
		slog.String("conversation_id", t.Spec.Conversation), slog.String("engine", t.Spec.Engine),
	}, attrs...)...)
}

// Ready is closed when the engine runs.
func (t *Turn) Ready() <-chan struct{} { return t.ready }

// Ended is closed when nothing of the box is left.
func (t *Turn) Ended() <-chan struct{} { return t.ended }

// Pid is the engine's process, 0 before it runs.
func (t *Turn) Pid() int {
	select {
	case <-t.ready:
		return t.live.Engine.Pid
	default:
		return 0
	}
}

// Landlock is the version that confines the engine, 0 before it runs.
func (t *Turn) Landlock() int {
	select {
	case <-t.ready:
		return t.live.Landlock
	default:
		return 0
	}
}

// Signal sends a signal to the engine. Before the engine runs there is nobody
// to tell.
func (t *Turn) Signal(sig syscall.Signal) error {
	select {
	case <-t.ready:
		return t.live.Engine.Signal(unix.Signal(sig))
	default:
		return reason.New(reason.NoSuchBox, "the box %s has not started yet", t.ID)
	}
}

// Kill ends the box whole and returns when it is gone.
func (t *Turn) Kill() {
	select {
	case <-t.ready:
		t.group.Kill()
		t.live.Kill()
	case <-t.ended:
	}
	<-t.ended
}
