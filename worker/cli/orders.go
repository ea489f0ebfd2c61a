package cli

import (
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/engine"
	"github.com/openmausbot/botbox/worker/internal/secret"
	"github.com/openmausbot/botbox/worker/internal/spec"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// containersBot is the bot that the container's own command is, where each has
// a Linux user of its own.
const containersBot = "container"

// orders carries out what the supervisor asks for.
type orders struct{ w *worker }

// BoxStart makes the container's own command a box, with the container's
// stdio, which this process inherited.
func (o orders) BoxStart(start wire.StartSpec) (string, error) {
	s := o.spec(start)
	t, _, err := o.w.runner.Prepare(s, turn.Way{First: box.ChildFD})
	if s.Cwd != "" && err != nil && reason.Of(err).Code == reason.BotUserPath {
		o.w.log.Warn("the container's working folder is not the bot's own user's; the command starts in an empty HOME", "folder", s.Cwd)
		s.Cwd = ""
		t, _, err = o.w.runner.Prepare(s, turn.Way{First: box.ChildFD})
	}
	if err != nil {
		return "", err
	}
	child, err := o.w.runner.Spawner.Start(t.Kit, [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, !s.TTY)
	if err != nil {
		t.Abandon()
		return "", err
	}
	failed := make(chan error, 1)
	o.w.exits.Go(func() {
		if _, err := t.Attend(); err != nil {
			failed <- err
			child.Kill()
		}
		o.w.channel.BoxExited(t.ID, child.Wait())
	})
	select {
	case <-t.Ready():
		return t.ID, nil
	case err := <-failed:
		return "", explain(o.w.runner, o.w.runner.Entry, err)
	}
}

// spec turns the container's command into a turn. A working folder that no
// box may have, such as the / of an image without WORKDIR, is none: the
// command then works in its own empty HOME, and says so.
func (o orders) spec(start wire.StartSpec) spec.Spec {
	s := spec.Spec{
		V: 1, Kind: "turn", Argv: start.Argv, Cwd: start.Dir, Engine: engine.Of(start.Argv, func(word string) string { return box.Leads(word, o.w.runner.Path) }),
		Home: spec.Home{Mode: "private"}, Net: spec.Net{Mode: "gated"}, Env: map[string]spec.Value{},
	}
	for _, entry := range append(o.w.handover.Env, start.Env...) {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
			s.Env[name] = spec.Value{Text: secret.New(value)}
		}
	}
	if o.w.runner.Users != nil {
		s.Bot = containersBot
	}
	_, err := unix.IoctlGetTermios(0, unix.TCGETS)
	s.TTY = err == nil
	if _, err := box.NewPlan(s, o.w.runner.Machine.Again(), o.w.runner.Ports); err != nil || box.CheckWorkFolder(start.Dir) != nil {
		o.w.log.Warn("the container's working folder cannot be a box's work folder; the command starts in an empty HOME", "folder", start.Dir)
		s.Cwd = ""
	}
	return s
}

// BoxSignal passes a signal of the container's on to the engine.
func (o orders) BoxSignal(id string, sig syscall.Signal) error {
	t, err := o.w.runner.Find(id)
	if err != nil {
		return err
	}
	return t.Signal(sig)
}

// Drain ends all boxes, and returns when the supervisor has been told how its
// own one ended: that is the container's exit status.
func (o orders) Drain(within time.Duration) {
	o.w.runner.Drain(within)
	o.w.exits.Wait()
}
