package turn

import (
	"log/slog"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/events"
	"github.com/openmausbot/botbox/worker/internal/gate/devtools"
	"github.com/openmausbot/botbox/worker/internal/journal"
	"github.com/openmausbot/botbox/worker/internal/vault"
)

// TakeBack serves the boxes again that outlived a worker. Their grants are the
// broker's already. A box that cannot be taken back is killed: nobody would
// hold it to its limits.
func (r *Runner) TakeBack(deposits []vault.Deposit) {
	for _, d := range deposits {
		if err := r.takeBack(d); err != nil {
			journal.BoxLost.Log(r.Log, slog.String("box_id", d.Box), slog.String("cause", err.Error()))
			r.Vault.Drop(d.Box)
		}
	}
}

func (r *Runner) takeBack(d vault.Deposit) error {
	returned, err := box.Return(d.Kinds, d.Files)
	if err != nil {
		return err
	}
	b, err := returned.Record()
	if err != nil {
		b = nil // and then it cannot be read below
	}
	rec, used, err := parseRecord(b, d.Text)
	switch {
	case returned.Ended():
		if err == nil {
			r.unseen(rec.ID)
		}
		returned.Close()
		return r.Vault.Drop(d.Box)
	case err == nil:
		err = r.resume(d.Box, returned, rec, used)
	default:
		returned.Kill()
		returned.Close()
	}
	return err
}

// resume makes a turn of a box that lives.
func (r *Runner) resume(key string, returned *box.Returned, rec record, used spent) error {
	t := &Turn{
		Spec: rec.Spec, Since: rec.Since, runner: r, holder: rec.Held, ready: make(chan struct{}), ended: make(chan struct{}),
		Plan: &box.Plan{ID: rec.ID, Ports: rec.Ports, Listen: rec.Facts.Listen, Pids: rec.Spec.Limits.Pids, Debug: rec.Debug},
		kept: key, raw: rec.Raw,
	}
	err := t.hostsAgain(rec.ID, rec.Hosts)
	if err == nil {
		err = t.chooseGates()
	}
	for _, port := range rec.Facts.Listen {
		if err == nil && t.gates[port] == nil {
			err = reason.New(reason.Internal, "there is no gate for its port %d", port)
		}
	}
	if err == nil {
		err = r.admit(t, rec.ID)
	}
	if err != nil {
		returned.Kill()
		returned.Close()
		return err
	}
	live, kit, err := returned.Live(rec.Facts)
	if err != nil {
		t.finish()
		return err
	}
	t.Kit = kit
	t.debugAgain(rec.DebugPort)
	t.reachHosts()
	t.egress.Budget.Spend(used.Egress)
	r.Broker.Spend(t.ID, used.Grants)
	r.raw(t.raw)
	t.group = r.Groups.Again(t.ID)
	if err := t.measure(live); err != nil {
		live.Close()
		t.group.Close()
		t.finish()
		return err
	}
	t.live = live
	close(t.ready)
	go t.outlived(live)
	return nil
}

// debugAgain serves a browser's debugging port where it was. Another may have
// taken it meanwhile: the box goes on without.
func (t *Turn) debugAgain(port int) {
	if t.Plan.Debug == nil || port == 0 {
		return
	}
	var err error
	if t.debug, err = devtools.Listen(port); err != nil {
		t.debug = nil
		t.runner.Log.Warn("a browser's debugging port cannot be served again", slog.String("box_id", t.ID), slog.String("cause", err.Error()))
	}
}

// outlived stays with the box until it has ended, as Attend does.
func (t *Turn) outlived(live *box.Live) {
	defer t.finish()
	defer func() { t.group.Close() }()
	defer live.Close()
	serving := t.attach(live)
	defer serving.close()
	defer t.runner.Broker.Revoke(t.ID)
	defer t.withdraw()
	t.run(live, journal.BoxReturned)
}

// unseen notes the end of a box that nobody saw.
func (r *Runner) unseen(id string) {
	r.remember(Ending{ID: id, End: EndUnseen, Code: -1, At: time.Now()})
	journal.BoxEnded.Log(r.Log, slog.String("box_id", id), slog.String("end", EndUnseen))
	code := -1
	r.Events.Add(events.Event{Event: journal.BoxEnded.Name, Box: id, Life: &events.Life{Code: &code, End: EndUnseen}})
}

// Orphans gives those of the boxes that are not open, as ended: whatever of
// theirs is left is to be revoked.
func (r *Runner) Orphans(boxes []string) (gone []string) {
	for _, id := range boxes {
		if _, err := r.Find(id); err == nil {
			continue
		}
		if _, told := r.Ended(id); !told {
			r.unseen(id)
		}
		gone = append(gone, id)
	}
	return gone
}
