package cli

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/control"
	"github.com/openmausbot/botbox/worker/internal/engine"
	"github.com/openmausbot/botbox/worker/internal/lease"
	"github.com/openmausbot/botbox/worker/internal/secret"
	"github.com/openmausbot/botbox/worker/internal/spec"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// containersBot is the bot that the container's own command is, where each has
// a Linux user of its own.
const containersBot = "container"

// askAgain bounds how long the container's command waits for a worker that has
// just died to be replaced.
const (
	askAgain      = 30 * time.Second
	askAgainAfter = 20 * time.Millisecond
)

// containersBox is `botbox run --control`: the supervisor's own command becomes
// a box of the worker's, as anybody's does, and stays the supervisor's child.
// What it runs came through a pipe, for the container's keys are among it: this
// process is closed to others before it reads them, they go to the worker over
// its socket, and bubblewrap starts with an empty environment.
func (c *call) containersBox(args []string) error {
	if len(args) != 1 {
		return reason.New(reason.Usage, "--control is for botbox-supervisor, and stands alone")
	}
	a, programs, err := c.enter("boxentry")
	if err == nil {
		err = closeToOthers()
	}
	if err == nil {
		err = c.switchedOff()
	}
	if err != nil {
		return err
	}
	start, err := control.ReadStart()
	if err != nil {
		return err
	}
	// Nobody will be here to say why bubblewrap fails: its own words are no
	// stable answer. A machine that is slow may still build a box.
	if found := box.NewSpawner().Detect(os.Getenv("PATH"), programs[0]); found.Err != nil && reason.Of(found.Err).Code != reason.ProbeTimeout {
		return found.Err
	}
	s := c.containersSpec(start, a)
	if !s.TTY {
		_ = unix.Setpgid(0, 0) // what is typed at a terminal around the supervisor is not for bubblewrap, which dies of it
	}
	l, err := c.askPatiently(s)
	if s.Cwd != "" && err != nil && reason.Of(err).Code == reason.BotUserPath {
		c.withoutFolder(&s)
		l, err = c.askPatiently(s)
	}
	if err != nil {
		return err
	}
	c.take(l, false)
	return l.Become(s.TTY)
}

// plainVerb is the supervisor's command without a box.
func plainVerb(c *call, args []string) (int, error) {
	var supervised bool
	rest, err := c.parse("plain", args, func(set *flag.FlagSet) {
		set.BoolVar(&supervised, "control", false, "take the command and its environment from botbox-supervisor, on descriptor 3")
	})
	if err != nil {
		return 0, err
	}
	if !supervised || len(rest) > 0 {
		return 0, reason.New(reason.Usage, "plain is for botbox-supervisor alone").WithHint("start the command itself, or botbox-supervisor --plain -- CMD")
	}
	status, err := control.Plain()
	var ours *reason.Error
	if errors.As(err, &ours) {
		return 0, err
	}
	fmt.Fprintf(c.stderr, "botbox: %v\n", err) // the command's fault, as its status says
	return status, nil
}

// containersSpec turns the container's command into a turn. A working folder
// that no box may have, such as the / of an image without WORKDIR, is none.
func (c *call) containersSpec(start wire.StartSpec, a account) spec.Spec {
	path := os.Getenv("PATH")
	s := spec.Spec{
		V: 1, Kind: "turn", Argv: start.Argv, Cwd: start.Dir, Engine: engine.Of(start.Argv, func(word string) string { return box.Leads(word, path) }),
		Home: spec.Home{Mode: "private"}, Net: spec.Net{Mode: "gated"}, Env: map[string]spec.Value{},
	}
	for _, entry := range start.Env {
		name, value, _ := strings.Cut(entry, "=")
		s.Env[name] = spec.Value{Text: secret.New(value)}
	}
	if c.settings.BotUsers == "1" {
		s.Bot = containersBot
	}
	_, err := unix.IoctlGetTermios(0, unix.TCGETS)
	s.TTY = err == nil
	if _, err := box.NewPlan(s, c.machine(a), turn.DefaultPorts(int(c.settings.Port))); err != nil || box.CheckWorkFolder(start.Dir) != nil {
		c.withoutFolder(&s)
	}
	return s
}

func (c *call) withoutFolder(s *spec.Spec) {
	fmt.Fprintf(c.stderr, "botbox: warning: the container's working folder %s cannot be a box's work folder; the command starts in an empty HOME\n", s.Cwd)
	s.Cwd = ""
}

// askPatiently asks the worker, and the next one where it has died of late.
func (c *call) askPatiently(s spec.Spec) (l *lease.Lease, err error) {
	for end := time.Now().Add(askAgain); ; time.Sleep(askAgainAfter) {
		if l, err = lease.Ask(c.settings.runDir(), s); err == nil || !lease.Gone(err) || time.Now().After(end) {
			break
		}
	}
	if errors.Is(err, lease.ErrNoWorker) {
		err = c.noWorker(err)
	}
	return l, err
}
