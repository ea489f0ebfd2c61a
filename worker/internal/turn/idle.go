package turn

import (
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/usage"
)

// idleness is an idle limit over a box.
type idleness struct {
	meter  usage.Meter
	within time.Duration
	last   usage.Use
	at     time.Time // of last
	quiet  time.Time // since when nothing was done
}

// measure looks at the box for the first time, before its engine runs: where it
// cannot be looked at, the limit cannot be held.
func (t *Turn) measure(live *box.Live) error {
	if t.Spec.Limits.IdleS == 0 {
		return nil
	}
	m := usage.Meter{
		Init: live.Init.Pid, Engine: live.Engine.Pid,
		Network: t.Spec.Net.Mode != "shared", Terminal: t.Spec.TTY,
	}
	first, err := m.Read()
	if err != nil {
		return reason.New(reason.LimitsUnavailable, "the limit of idle time cannot be held here: %w", err).
			WithHint("leave limits.idle_s out, or let this user see its own processes in /proc")
	}
	now := time.Now()
	t.idle = &idleness{meter: m, within: time.Duration(t.Spec.Limits.IdleS) * time.Second, last: first, at: now, quiet: now}
	return nil
}

// A box is looked at so often in its time, or at least in every longest.
const (
	looks   = 8
	longest = 5 * time.Second
)

func (i *idleness) every() time.Duration { return min(i.within/looks, longest) }

// over tells whether the box has done nothing for its idle time. One that
// cannot be looked at, for it is ending, is not idle.
func (i *idleness) over() bool {
	use, err := i.meter.Read()
	now := time.Now()
	since := now.Sub(i.at)
	// Time in which nobody looked, for we were stopped ourselves, says nothing.
	if err != nil || since > 4*i.every() || use.Busy(i.last, since) {
		i.quiet = now
	}
	if err == nil {
		i.last = use
	}
	i.at = now
	return now.Sub(i.quiet) >= i.within
}
