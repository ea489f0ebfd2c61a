package cli

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/cgroup"
	"github.com/openmausbot/botbox/worker/internal/spec"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// standalone keeps the gates in this process, with bubblewrap as its child.
func (c *call) standalone(entry box.Program, a account, s spec.Spec, f runFlags) (int, error) {
	if s.Net.Relay {
		return 0, reason.New(reason.NoWorker, "the sign-in relay (net.relay) is used over a worker's interface, and there is none").
			WithHint("start a worker, botbox serve, and leave --standalone out")
	}
	if c.settings.BotUsers == "1" {
		return 0, reason.New(reason.BotUsersRefused, "this box stands alone, and OMB_BOT_USERS=1 wants a Linux user of its own for it, which only a worker of botbox-supervisor can give").
			WithHint("start botbox-supervisor with OMB_BOT_USERS=1, or set OMB_BOT_USERS=0")
	}
	// What the gates refuse, the command reads in their answers; only errors
	// of our own belong on a terminal that is the command's.
	log := slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	r, err := c.newRunner(entry, a, broker.Options{BootKey: newBootKey()}, log)
	if err != nil {
		return 0, err
	}
	defer r.Broker.Close()
	r.Count = func(string) {}
	if s.Limits.MemoryMB > 0 || s.Limits.CPU > 0 { // else the caller's cgroup is left as it is
		r.Groups, r.NoGroups = cgroup.Take(0)
	}
	below := inherited(s)
	t, answer, err := r.Prepare(s, turn.Way{First: box.ChildFD + len(below)})
	if err != nil {
		return 0, err
	}
	if f.dryRun {
		defer t.Abandon()
		printPlan(c.stdout, t.Kit)
		return 0, nil
	}
	c.introduce(answer, f.json)
	t.Kit.Below = below
	signals := c.catch(s.TTY)
	child, err := r.Spawner.Start(t.Kit, [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, !s.TTY)
	if err != nil {
		t.Abandon()
		return 0, explain(r, entry, err)
	}
	go forward(signals, t)
	_, err = t.Attend()
	if err != nil {
		child.Kill()
		child.Wait()
		return 0, explain(r, entry, err)
	}
	code := child.Wait()
	c.tell(t)
	if advice := t.Advice(); advice != nil {
		printAdvice(c.stderr, advice)
	}
	return code, nil
}

// tell says why a box ended that did not end by itself.
func (c *call) tell(t *turn.Turn) {
	switch t.Ending().End {
	case turn.EndOOM:
		if t.Spec.Limits.MemoryMB == 0 {
			fmt.Fprintln(c.stderr, "botbox: the box ran out of memory, which the machine had no more of")
			return
		}
		fmt.Fprintf(c.stderr, "botbox: the box ran out of memory (limit %dM)\nhint: give it more with --memory\n", t.Spec.Limits.MemoryMB)
	case turn.EndWall:
		fmt.Fprintf(c.stderr, "botbox: the box's time was over (limit %ds)\nhint: give it more in limits.wall_s of its spec\n", t.Spec.Limits.WallS)
	case turn.EndIdle:
		fmt.Fprintf(c.stderr, "botbox: the box did nothing for too long (limit %ds)\nhint: give it more in limits.idle_s of its spec\n", t.Spec.Limits.IdleS)
	case turn.EndDisk:
		fmt.Fprintf(c.stderr, "botbox: the disk was too full for the box to go on (limit %dM free)\nhint: make room there, or lower limits.disk_free_mb of its spec\n", t.Spec.Limits.DiskFreeMB)
	}
}

// forwarded are the signals that belong to the engine. With a terminal of its
// own it gets INT and QUIT from there, once.
var forwarded = []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH}

func (c *call) catch(tty bool) <-chan os.Signal {
	signals := make(chan os.Signal, 16)
	for _, sig := range forwarded {
		if !signal.Ignored(sig) { // under nohup it stays ignored, in the engine too
			signal.Notify(signals, sig)
		}
	}
	if tty {
		signal.Ignore(syscall.SIGINT, syscall.SIGQUIT)
		return signals
	}
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT} {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	return signals
}

// forward hands signals on, as soon as there is an engine to have them.
func forward(signals <-chan os.Signal, t *turn.Turn) {
	for sig := range signals {
		select {
		case <-t.Ready():
			t.Signal(sig.(syscall.Signal))
		case <-t.Ended():
			return
		}
	}
}

// explain looks for the cause of a box that could not be built: bubblewrap's
// own words are no stable answer.
func explain(r *turn.Runner, entry box.Program, err error) error {
	if found := r.Spawner.Detect(os.Getenv("PATH"), entry); found.Err != nil {
		return found.Err
	}
	return err
}
