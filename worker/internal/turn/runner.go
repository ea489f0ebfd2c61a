package turn

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/cgroup"
	"github.com/openmausbot/botbox/worker/internal/events"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/journal"
	"github.com/openmausbot/botbox/worker/internal/secret"
	"github.com/openmausbot/botbox/worker/internal/spec"
	"github.com/openmausbot/botbox/worker/internal/vault"
)

// DefaultPorts are those that a box's environment names (DESIGN §10). The
// harness port is the server's own.
func DefaultPorts(harness int) box.Ports {
	return box.Ports{Egress: 3128, Broker: 18080, Harness: harness, SOCKS: box.SOCKSPort}
}

// Limit is how many boxes one worker has open at most.
const Limit = 512

// meetWithin bounds the time between a kit and its box. A lease whose holder
// never execs bubblewrap is given up after it.
const meetWithin = 15 * time.Second

// Runner prepares and attends boxes on one machine.
type Runner struct {
	Spawner *box.Spawner
	Path    string      // where bubblewrap is looked for, anew for each box
	Entry   box.Program // boxentry
	Machine box.Machine
	Ports   box.Ports
	Broker  *broker.Broker
	Egress  gate.Dialer // what all boxes of this machine have in common
	Harness string      // the server behind the harness gate, tcp:HOST:PORT or unix:PATH
	Secrets func(name string) (secret.Text, error)
	Roots   string // a file of the roots that this process trusts; empty is the system's
	Log     *slog.Logger
	Events  *events.Ring // nil where nobody can ask for them
	// Groups bounds boxes by cgroups; nil where this process rules none, and
	// NoGroups then says why not.
	Groups   *cgroup.Tree
	NoGroups error
	// Vault is where boxes are kept that are to outlive this worker; nil
	// without a supervisor.
	Vault *vault.Vault

	// Users gives a bot's box its own Linux user; nil: boxes run as ours.
	Users func(bot string) (*box.User, error)

	// Off says why this machine gives no box now; nil = it does. May be nil.
	Off func() error

	// Count counts what the report shows: "boxed", boxes whose engine ran, and
	// "refused", specs that got none.
	Count func(name string)

	mu         sync.Mutex
	boxes      map[string]*Turn
	unbrokered map[string]bool // names of credentials that went into a box raw
	declared   map[string]bool // hosts whose TLS a box's gate ended
	closed     bool
	endings    []Ending // of the latest boxes
}

// admit gives a turn its name, which no other running box has.
func (r *Runner) admit(t *Turn, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return reason.New(reason.WorkerStopping, "this worker gives no box any more: it is stopping")
	case len(r.boxes) >= Limit:
		return reason.New(reason.TooManyBoxes, "%d boxes are open", len(r.boxes))
	case id == "":
		id = newID()
	case r.boxes[id] != nil:
		return reason.New(reason.BadSpec, "the spec is not usable: field id: a box of this name is running")
	}
	if r.boxes == nil {
		r.boxes = map[string]*Turn{}
	}
	t.ID = id
	r.boxes[id] = t
	return nil
}

func newID() string {
	var b [8]byte
	rand.Read(b[:])
	return "box_" + hex.EncodeToString(b[:])
}

func (r *Runner) forget(t *Turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.boxes, t.ID)
}

// Find gives a running box by its name.
func (r *Runner) Find(id string) (*Turn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.boxes[id]; t != nil {
		return t, nil
	}
	return nil, reason.New(reason.NoSuchBox, "there is no running box %q", id)
}

// HeldBy gives the running box whose bubblewrap is the process pid, which asked
// for it.
func (r *Runner) HeldBy(pid int) (*Turn, error) {
	for _, t := range r.Running() {
		if pid > 1 && t.holder == pid {
			return t, nil
		}
	}
	return nil, reason.New(reason.NoSuchBox, "the process %d holds no running box", pid)
}

// Running lists the boxes that are open.
func (r *Runner) Running() []*Turn {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Turn, 0, len(r.boxes))
	for _, t := range r.boxes {
		all = append(all, t)
	}
	return all
}

// Refuse counts a spec that got no box, and says so in the log.
func (r *Runner) Refuse(s spec.Spec, err error) error {
	r.Count("refused")
	r.Events.Add(events.Event{
		Event: journal.BoxRefused.Name, Bot: s.Bot, Conversation: s.Conversation, Engine: s.Engine,
		Life: &events.Life{Reason: string(reason.Of(err).Code)},
	})
	journal.BoxRefused.Log(r.Log, slog.String("reason", string(reason.Of(err).Code)),
		slog.String("bot_id", s.Bot), slog.String("conversation_id", s.Conversation), slog.String("cause", err.Error()))
	return err
}

// raw remembers the credentials that no broker stands for: the report names
// them, so that the gap is visible.
func (r *Runner) raw(names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unbrokered == nil {
		r.unbrokered = map[string]bool{}
	}
	for _, name := range names {
		r.unbrokered[name] = true
	}
}

// Unbrokered lists the credentials that went into a box raw since the start.
func (r *Runner) Unbrokered() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := slices.Sorted(maps.Keys(r.unbrokered))
	if names == nil {
		names = []string{}
	}
	return names
}
