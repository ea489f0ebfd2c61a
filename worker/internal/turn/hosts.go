package turn

import (
	"context"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/egress"
	"github.com/openmausbot/botbox/worker/internal/gate/intercept"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// identityTTL is a token's longest life, and time for the box to start in.
const identityTTL = broker.MaxTTL + time.Hour

// declared is what a box has of the hosts that its spec declares.
type declared struct {
	identity *intercept.Identity
	listener *intercept.Listener
}

// interceptor is nil, and not a nil pointer in an interface, for a box without.
func (d *declared) interceptor() egress.Interceptor {
	if d == nil {
		return nil
	}
	return d.listener
}

// declareHosts makes the box's certificate for the hosts whose TLS its gate
// ends, and what the box has to trust for it.
func (t *Turn) declareHosts() error {
	var names []string
	for _, h := range t.Spec.Broker.Hosts {
		names = append(names, h.Hosts...)
	}
	if len(names) == 0 {
		return nil
	}
	now := time.Now()
	id, err := intercept.NewIdentity(names, now, now.Add(identityTTL))
	if err != nil {
		return err
	}
	bundle, err := intercept.Bundle(t.runner.Roots, id.Root)
	if err != nil {
		return err
	}
	t.hosts = newDeclared(id)
	t.Plan.Data = append(t.Plan.Data, box.Data{Dest: intercept.BundlePath, Content: bundle,
		Reason: "the roots that the box trusts: the machine's, and one for its declared hosts only"})
	return nil
}

func newDeclared(id *intercept.Identity) *declared {
	return &declared{identity: id, listener: intercept.Listen(id)}
}

// sealed is the box's certificate with its key, for the next worker of this
// boot alone; nothing for a box without.
func (d *declared) sealed(t *Turn) ([]byte, error) {
	if d == nil {
		return nil, nil
	}
	b, err := d.identity.Marshal()
	if err != nil {
		return nil, err
	}
	return t.runner.Broker.Seal(t.ID, b), nil
}

// hostsAgain takes the certificate over that a worker before this one sealed.
// Without it the gate would let the box's placeholders through to the hosts.
func (t *Turn) hostsAgain(id string, sealed []byte) error {
	if sealed == nil {
		return nil
	}
	b, err := t.runner.Broker.Unseal(id, sealed)
	if err != nil {
		return err
	}
	identity, err := intercept.ParseIdentity(b)
	if err != nil {
		return reason.New(reason.Internal, "%w", err)
	}
	t.hosts = newDeclared(identity)
	return nil
}

// takeDeclared takes the declared keys out of what was given, before anybody
// decides about their names: none of them enters the box.
func (t *Turn) takeDeclared(given map[string]secret.Text) []broker.Key {
	var keys []broker.Key
	for _, h := range t.Spec.Broker.Hosts {
		keys = append(keys, broker.HostKeys(h.Env, given[h.Env], h.Hosts, h.Paths)...)
		delete(given, h.Env)
	}
	return keys
}

// dialDeclared opens the broker's connection to a declared host, as the box's
// own gate would.
func (t *Turn) dialDeclared(ctx context.Context, host string) (net.Conn, error) {
	c, refusal := t.egress.Dial(ctx, hostport.Host{Name: host, Port: 443})
	if refusal != nil {
		return nil, refusal
	}
	gate.Probe(c)
	return c, nil
}

// trustDeclared tells the box's programs what to trust.
func (t *Turn) trustDeclared(answer *Answer) {
	if t.hosts == nil {
		return
	}
	for _, name := range intercept.TrustNames() {
		if _, given := t.Plan.Env[name]; given {
			answer.Warnings = append(answer.Warnings, name+" is overruled in this box: its file does not have the root of the declared hosts. What the worker's SSL_CERT_FILE holds is in it")
		}
		t.Plan.Env[name] = intercept.BundlePath
	}
}

// reachHosts lets the grants of a box that was taken back dial its hosts.
func (t *Turn) reachHosts() {
	if t.hosts != nil {
		t.runner.Broker.Reach(t.ID, t.dialDeclared)
		t.runner.intercepts(t.hosts.identity.Hosts())
	}
}

func (r *Runner) intercepts(hosts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.declared == nil {
		r.declared = map[string]bool{}
	}
	for _, host := range hosts {
		r.declared[host] = true
	}
}

// Intercepted lists the hosts whose TLS a box's gate ended since the start.
func (r *Runner) Intercepted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, slices.Sorted(maps.Keys(r.declared))...)
}
