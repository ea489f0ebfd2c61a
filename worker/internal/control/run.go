package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
)

// Actions is what the supervisor can ask for. Drain runs on a goroutine of its
// own, so that pings are answered meanwhile.
type Actions interface {
	BoxSignal(pid int, sig syscall.Signal) error
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
	case wire.BoxSignal:
		// A box that is just ending cannot take a signal: no error of the channel.
		_ = a.BoxSignal(f.Int("pid"), syscall.Signal(f.Int("sig")))
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
