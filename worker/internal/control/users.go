package control

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
)

// userWithin bounds the wait for an answer about a bot's user.
const userWithin = 5 * time.Second

// users is the one question about a bot's user that is open at a time: the
// answers carry no name of the question.
type users struct {
	asking sync.Mutex

	mu   sync.Mutex
	open chan wire.Frame // nil while nothing is asked
	late bool            // a question was given up: its answer may still come, and would be another's
}

// ask sends a frame and waits for its answer.
func (c *Channel) ask(verb wire.Verb, keyvals ...string) (wire.Frame, error) {
	select {
	case <-c.greeted: // the API is open before the supervisor has said its first word
	case <-time.After(userWithin):
		return wire.Frame{}, reason.New(reason.System, "the supervisor has not said hello")
	}
	c.users.asking.Lock()
	defer c.users.asking.Unlock()
	answer := make(chan wire.Frame, 1)
	c.users.mu.Lock()
	late := c.users.late
	c.users.open = answer
	c.users.mu.Unlock()
	if late {
		return wire.Frame{}, reason.New(reason.System, "the supervisor did not answer an earlier question about a bot's user")
	}
	if err := c.send(verb, keyvals...); err != nil {
		return wire.Frame{}, reason.New(reason.System, "ask the supervisor for a bot's user: %w", err)
	}
	select {
	case f := <-answer:
		if f.Verb == wire.UIDRefused {
			code := reason.Code(f.Args["code"])
			if _, known := reason.Lookup(code); !known {
				code = reason.BotUsersRefused
			}
			return f, reason.New(code, "the supervisor could not do %s", verb)
		}
		return f, nil
	case <-time.After(userWithin):
		c.users.mu.Lock()
		c.users.late = true
		c.users.mu.Unlock()
		return wire.Frame{}, reason.New(reason.System, "the supervisor did not answer %s", verb)
	}
}

// answer takes a frame that nobody can have asked for as a broken channel, but
// one that comes too late as what it is.
func (u *users) answer(f wire.Frame) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open == nil {
		return fmt.Errorf("%s was not asked for", f.Verb)
	}
	select {
	case u.open <- f:
	default:
		return fmt.Errorf("%s came twice", f.Verb)
	}
	return nil
}

// LeaseUser leases the Linux user of a bot, for one Map or one Release.
func (c *Channel) LeaseUser(bot string) (lease string, uid int, err error) {
	f, err := c.ask(wire.UIDLease, "bot", bot)
	if err != nil {
		return "", 0, err
	}
	uid, err = strconv.Atoi(f.Args["uid"])
	if f.Verb != wire.UIDLeased || err != nil {
		return "", 0, errors.New("the supervisor answered something else")
	}
	return f.Args["lease"], uid, nil
}

// MapUser has the maps of the user namespace written that a child of this
// process is in. The lease is over, whatever becomes of it.
func (c *Channel) MapUser(lease string, pid int) error {
	f, err := c.ask(wire.UIDMap, "lease", lease, "pid", strconv.Itoa(pid))
	if err == nil && (f.Verb != wire.UIDMapped || f.Args["lease"] != lease) {
		err = errors.New("the supervisor answered something else")
	}
	return err
}

// ReleaseUser gives a lease back that was not used.
func (c *Channel) ReleaseUser(lease string) error {
	return c.send(wire.UIDRelease, "lease", lease)
}

// KillUser kills whatever runs as a leased user, and gives the lease back. It
// is done when the next answer comes.
func (c *Channel) KillUser(lease string) error {
	if err := c.send(wire.BoxKill, "lease", lease); err != nil {
		return err
	}
	return c.ReleaseUser(lease)
}
