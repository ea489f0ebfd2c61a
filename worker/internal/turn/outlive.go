package turn

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// record is what a worker after this one has to know of a box to take it back.
// It holds no value of the environment, no argument, no key in the clear and no
// token. It lies in the vault beside the box's files and not in the database: so both
// are there or none, no box waits for a disk, and nothing is left of them once
// the supervisor is gone.
type record struct {
	Build string    `json:"build"`
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
	Spec  spec.Spec `json:"spec"`
	Facts box.Facts `json:"facts"`
	Ports box.Ports `json:"ports"`
	Held  int       `json:"held_by"` // the process that became bubblewrap
	Raw   []string  `json:"raw"`
	Hosts []byte    `json:"hosts,omitempty"` // the certificate of its declared hosts and its key, sealed under the boot key

	Debug     *box.Debug `json:"debug,omitempty"`
	DebugPort int        `json:"debug_port,omitempty"` // where it is served
}

// kept is the part of a spec that is held while a box runs.
func kept(s spec.Spec) spec.Spec {
	return spec.Spec{
		V: s.V, Kind: s.Kind, Bot: s.Bot, Conversation: s.Conversation, Turn: s.Turn, Engine: s.Engine, TTY: s.TTY,
		Net: spec.Net{Mode: s.Net.Mode, Egress: s.Net.Egress, Harness: s.Net.Harness, Relay: s.Net.Relay}, Limits: s.Limits,
		Broker: spec.Broker{Limits: s.Broker.Limits}, Profile: s.Profile,
	}
}

// deposit puts what the box outlives this worker with into the vault, and its
// grants into the database, before its engine runs. Only a leased box can
// outlive us: another's bubblewrap is our child, and dies with us. Where it
// fails the box runs all the same, as it would without a supervisor.
func (t *Turn) deposit(live *box.Live) {
	if t.runner.Vault == nil || t.Kit.First != box.LeaseFD {
		return
	}
	key := newID() // not the box's own name, which another has when it is over
	err := t.keep(live, key)
	if err != nil {
		t.runner.Log.Warn("a box will not outlive this worker", slog.String("box_id", t.ID), slog.String("cause", err.Error()))
		return
	}
	t.kept = key
	t.runner.Broker.Settle()
}

func (t *Turn) keep(live *box.Live, key string) error {
	hosts, err := t.hosts.sealed(t)
	if err != nil {
		return err
	}
	rec := record{
		Build: wire.Build, ID: t.ID, Since: t.Since, Spec: kept(t.Spec), Facts: live.Facts(t.Plan.Listen),
		Ports: t.Plan.Ports, Held: t.holder, Raw: t.raw, Hosts: hosts, Debug: t.Plan.Debug,
	}
	if t.debug != nil {
		rec.DebugPort = t.debug.Number
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if len(b) > wire.MaxVaultRecord {
		return reason.New(reason.Internal, "what is to be known of it is longer than %d bytes", wire.MaxVaultRecord)
	}
	sealed, err := box.Sealed("box-record", b)
	if err != nil {
		return err
	}
	defer sealed.Close()
	return live.Deposit(sealed, func(kinds string, files []int) error { return t.runner.Vault.Keep(key, kinds, files) })
}

// withdraw takes the box out of the vault, if it is there.
func (t *Turn) withdraw() {
	if t.kept != "" {
		t.runner.Vault.Drop(t.kept)
	}
}

// spent is what a box has used up of what it may use in all.
type spent struct {
	Egress int64                  `json:"egress,omitempty"`
	Grants map[string]broker.Used `json:"grants,omitempty"`
}

// counts tells whether the box has a limit of what it uses in all.
func (t *Turn) counts() bool {
	l := t.Spec.Broker.Limits
	return t.egress.Budget != nil || l.Bytes > 0 || l.Tokens > 0
}

// notes gives what was spent as a text for the vault.
func (t *Turn) notes() string {
	b, _ := json.Marshal(spent{t.egress.Budget.Used(), t.runner.Broker.Used(t.ID)})
	return string(b)
}

// noteEvery is how much of what a box spends a dead worker takes along.
const noteEvery = 250 * time.Millisecond

// note keeps the next worker informed of what the box has used up.
func (t *Turn) note(quit <-chan struct{}) {
	ticker, last := time.NewTicker(noteEvery), ""
	defer ticker.Stop()
	for {
		select {
		case <-quit:
			return
		case <-ticker.C:
		}
		now := t.notes()
		if now == last {
			continue
		}
		last = now
		if err := t.runner.Vault.Note(t.kept, now); err != nil {
			t.runner.Log.Warn("the next worker will not know what a box has used up", slog.String("box_id", t.ID), slog.String("cause", err.Error()))
			return
		}
	}
}

// parseRecord reads a record and what was noted beside it.
func parseRecord(b []byte, text string) (r record, s spent, err error) {
	if len(b) > wire.MaxVaultRecord {
		return r, s, reason.New(reason.Internal, "its record is too long")
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, s, reason.New(reason.Internal, "its record cannot be read")
	}
	if text != wire.NoNote {
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return r, s, reason.New(reason.Internal, "what it used up cannot be read")
		}
	}
	switch {
	case r.Build != wire.Build:
		return r, s, reason.New(reason.VersionSkew, "it was built by build %.64q, this is %s", r.Build, wire.Build)
	case r.ID == "" || r.Facts.Engine <= 1 || r.Facts.Init <= 1:
		return r, s, reason.New(reason.Internal, "its record lacks names")
	}
	return r, s, nil
}
