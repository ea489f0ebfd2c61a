package turn

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/gate/devtools"
	"github.com/openmausbot/botbox/worker/internal/gate/signin"
	"github.com/openmausbot/botbox/worker/internal/journal"
)

// lead opens the ways into the box that its spec asked for.
func (t *Turn) lead(s *serving) {
	if t.Spec.Net.Relay {
		p := t.Plan.Ports
		t.relay = signin.NewRelay(s.inward, p.Egress, p.Broker, p.Harness, p.SOCKS)
	}
	if t.debug != nil {
		t.debug.Serve(s.inward, t.announced(), t.fault)
	}
}

// openDebug takes the browser's debugging port on this machine before there is
// a box, so that a port that another holds is told and not hung on.
func (t *Turn) openDebug() (err error) {
	d := t.Plan.Debug
	if d == nil {
		return nil
	}
	if t.debug, err = devtools.Listen(d.Port); err == nil {
		t.Plan.SetDebugPort(t.debug.Number)
	}
	return err
}

// announced is where a driver that left the choice of the port to the browser
// looks for it.
func (t *Turn) announced() *devtools.File {
	if d := t.Plan.Debug; d.Port == 0 && d.Folder != "" {
		return &devtools.File{Profile: d.Profile, Folder: d.Folder}
	}
	return nil
}

// loopbacks are the servers of this machine that the box may call by name. The
// chat server is none: the harness gate is the way to it, to a part of it.
func (t *Turn) loopbacks() ([]broker.Loopback, error) {
	var all []broker.Loopback
	for _, l := range t.Spec.Net.LoopbackUpstreams {
		b := broker.Loopback{Name: l.Name, URL: l.URL}
		if port := b.Port(); port == strconv.Itoa(t.Plan.Ports.Harness) || port != "" && strings.HasSuffix(t.harness(), ":"+port) {
			return nil, reason.New(reason.BadSpec, "the spec is not usable: field net.loopback_upstreams: %q is the server itself, whose one door is the harness gate", l.Name)
		}
		all = append(all, b)
	}
	return all, nil
}

// harness is the server behind the harness gate.
func (t *Turn) harness() string { return cmp.Or(t.Spec.Net.Harness.Upstream, t.runner.Harness) }

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
