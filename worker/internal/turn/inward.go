package turn

import (
	"context"
	"log/slog"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/gate/signin"
	"github.com/openmausbot/botbox/worker/internal/journal"
)

// lead opens the ways into the box that its spec asked for.
func (t *Turn) lead(s *serving) {
	if t.Spec.Net.Relay {
		p := t.Plan.Ports
		t.relay = signin.NewRelay(s.inward, p.Egress, p.Broker, p.Harness, p.SOCKS)
	}
}

// Deliver sends the redirect of a sign-in to the engine that waits for it. What
// the log says of it holds neither path nor query: there is a code in it.
func (t *Turn) Deliver(ctx context.Context, c signin.Callback) (signin.Answer, error) {
	if !t.Spec.Net.Relay {
		return signin.Answer{}, reason.New(reason.NoRelay, "the box %s has no sign-in relay", t.ID)
	}
	select {
	case <-t.ready:
	default:
		return signin.Answer{}, reason.New(reason.RelayNotReady, "the box %s has not started yet", t.ID)
	}
	answer, err := t.relay.Deliver(ctx, c)
	result := "delivered"
	if err != nil {
		result = string(reason.Of(err).Code)
	}
	t.log(journal.SigninRelayed, slog.Int("port", int(c.Port)), slog.String("result", result), slog.Int("status", answer.Status))
	return answer, err
}
