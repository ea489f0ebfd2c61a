package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"syscall"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
)

// Actions is what the supervisor can ask for. BoxStart and Drain run on
// goroutines of their own, so that pings are answered meanwhile.
type Actions interface {
	BoxStart(wire.StartSpec) (box string, err error)
	BoxSignal(box string, sig syscall.Signal) error
	Drain(within time.Duration)
}

// ErrGone is the supervisor's death: nobody is left to keep us.
var ErrGone = errors.New("the supervisor is gone")

// Run answers the supervisor until it is gone (ErrGone), until a drain is done
// (nil: exit 0 now), until ctx ends, or until the channel breaks.
func (c *Channel) Run(ctx context.Context, a Actions) error {
	stop := context.AfterFunc(ctx, func() { c.from.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	order, err := c.hello()
	if err != nil {
		return c.ended(ctx, err)
	}
	drained := make(chan struct{})
	for {
		f, err := wire.Read(c.in, wire.ToWorker)
		if err == nil {
			err = order.Check(f)
		}
		if err == nil {
			err = c.serve(a, f, drained)
		}
		if err == nil {
			continue
		}
		select {
		case <-drained:
			return c.send(wire.Drained)
		default:
			return c.ended(ctx, err)
		}
	}
}

func (c *Channel) ended(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF):
		return ErrGone
	}
	return err
}

// hello answers the first frame and learns the epoch from it.
func (c *Channel) hello() (*wire.Order, error) {
	f, err := wire.Read(c.in, wire.ToWorker)
	if err != nil {
		return nil, err
	}
	order := &wire.Order{Epoch: f.Epoch}
	if err := order.Check(f); err != nil {
		return nil, err
	}
	if f.Verb != wire.Hello {
		return nil, fmt.Errorf("the first frame is %s, not hello", f.Verb)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.Epoch = f.Epoch
	// The supervisor hears our build in any case, so that it can name both.
	if err := c.write(wire.HelloAck, "ver", wire.Version, "build", wire.Build); err != nil {
		return nil, err
	}
	if f.Args["ver"] != wire.Version || f.Args["build"] != wire.Build {
		return nil, reason.New(reason.VersionSkew, "the supervisor is of build %.64q, this worker of %q", f.Args["build"], wire.Build)
	}
	close(c.greeted)
	if c.ready {
		return order, c.write(wire.Ready)
	}
	return order, nil
}

func (c *Channel) serve(a Actions, f wire.Frame, drained chan struct{}) error {
	switch f.Verb {
	case wire.Ping:
		return c.send(wire.Pong)
	case wire.BoxStart:
		c.mu.Lock()
		c.starting = true
		c.mu.Unlock()
		go c.start(a, f.Args["spec"])
		return nil
	case wire.BoxSignal:
		// A box that is just ending cannot take a signal: no error of the channel.
		_ = a.BoxSignal(f.Args["box"], syscall.Signal(f.Int("sig")))
		return nil
	case wire.UIDLeased, wire.UIDMapped, wire.UIDRefused:
		return c.users.answer(f)
	case wire.Drain:
		go func() {
			a.Drain(f.Duration("seconds"))
			close(drained)
			c.from.SetReadDeadline(time.Unix(1, 0)) // wakes Run
		}()
		return nil
	}
	return fmt.Errorf("%s is not expected here", f.Verb)
}

// start answers box.start: box.started before any box.exited, or error.
func (c *Channel) start(a Actions, name string) {
	var box string
	spec, err := readSpec(c.specDir, name)
	if err == nil {
		box, err = a.BoxStart(spec)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starting = false
	if err != nil {
		_ = c.write(wire.Error, "code", string(reason.Of(err).Code))
		return
	}
	c.box = box
	_ = c.write(wire.BoxStarted, "box", box)
	for _, e := range c.exits {
		_ = c.exited(e)
	}
	c.exits = nil
}

// Ready tells the supervisor that boxes can be started. It may be called
// before Run.
func (c *Channel) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ready {
		return nil
	}
	c.ready = true
	if c.out.Epoch == 0 {
		return nil // hello sends it
	}
	return c.write(wire.Ready)
}

// BoxExited tells that the box which box.start asked for ended with the exit
// status code, 0 to 255. Every other box is none of the supervisor's business
// and is passed over.
func (c *Channel) BoxExited(box string, code int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.starting {
		c.exits = append(c.exits, exit{box, code})
		return nil
	}
	return c.exited(exit{box, code})
}

func (c *Channel) exited(e exit) error {
	if e.box != c.box || c.box == "" {
		return nil
	}
	c.box = ""
	return c.write(wire.BoxExited, "box", e.box, "code", strconv.Itoa(e.code))
}

func (c *Channel) send(verb wire.Verb, keyvals ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.write(verb, keyvals...)
}

// write sends one frame in one write. The caller holds mu.
func (c *Channel) write(verb wire.Verb, keyvals ...string) error {
	b, err := c.out.Frame(wire.ToSupervisor, verb, keyvals...)
	if err != nil {
		return fmt.Errorf("write %s: %w", verb, err)
	}
	if _, err := c.to.Write(b); err != nil {
		return fmt.Errorf("write %s: %w", verb, err)
	}
	return nil
}
