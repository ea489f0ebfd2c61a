package turn

import (
	"log/slog"
	"syscall"
	"time"

	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/cgroup"
	"github.com/openmausbot/botbox/worker/internal/events"
	"github.com/openmausbot/botbox/worker/internal/journal"
)

// The ways in which a box ends, as its Ending tells them.
const (
	EndExited = "exited" // the engine ended, or was killed
	EndOOM    = "oom"    // the kernel killed it: its memory ran out
	EndWall   = "wall"   // we did: its time was over
)

// Ending is how a box ended.
type Ending struct {
	ID   string    `json:"id"`
	End  string    `json:"end"`
	Code int       `json:"code"`
	At   time.Time `json:"at"`
}

// grace is what an engine has to end by itself once its time is over.
const grace = 5 * time.Second

// CanHold says what can bound each thing that boxes of this machine use.
func (r *Runner) CanHold() map[string]string {
	can := map[string]string{"pids": "rlimit", "memory": "none", "cpu": "none"}
	for _, name := range []string{"memory", "cpu"} {
		if r.Groups.Has(name) {
			can[name] = "cgroup"
		}
	}
	return can
}

func (t *Turn) limits() cgroup.Limits {
	return cgroup.Limits{Pids: t.Plan.Pids, MemoryMB: t.Spec.Limits.MemoryMB, CPU: t.Spec.Limits.CPU}
}

// Holds says what bounds each thing that a box uses: its cgroup, a limit of its
// own processes, or nothing. Processes are always bounded.
func (t *Turn) Holds() map[string]string {
	holds := map[string]string{"pids": "rlimit", "memory": "none", "cpu": "none"}
	if t.Spec.Limits.MemoryMB > 0 { // or Prepare would have refused
		holds["memory"] = "cgroup"
	}
	if t.Spec.Limits.CPU > 0 {
		holds["cpu"] = "cgroup"
	}
	return holds
}

// bound moves a box whose engine waits into a cgroup of its own. bubblewrap's
// outer process stays out: it must live to tell how the box ended. Where
// nothing was asked for that needs the cgroup, the box does without: it may
// have been leased by somebody from whose cgroup we cannot move it.
func (t *Turn) bound(live *box.Live) error {
	group, err := t.runner.Groups.Make(t.ID, t.limits())
	if err == nil {
		err = group.Add(live.Init.Pid, live.Engine.Pid)
	}
	asked := t.Spec.Limits.MemoryMB > 0 || t.Spec.Limits.CPU > 0
	if err != nil {
		group.Close()
		group = nil
	}
	t.group = group
	if err != nil && !asked {
		t.runner.Log.Info("a box stays in its caller's cgroup", slog.String("box_id", t.ID), slog.String("cause", err.Error()))
		return nil
	}
	return err
}

// watchTime ends the box when its time is over: asked first, and then killed.
// What it returns ends the watch.
func (t *Turn) watchTime() (stop func() bool) {
	if t.Spec.Limits.WallS == 0 {
		return func() bool { return true }
	}
	return time.AfterFunc(time.Duration(t.Spec.Limits.WallS)*time.Second, func() {
		t.overdue.Store(true)
		t.Signal(syscall.SIGTERM)
		select {
		case <-t.ended:
		case <-time.After(grace):
			t.Kill()
		}
	}).Stop
}

// conclude notes how the box ended.
func (t *Turn) conclude(code int) {
	t.ending = Ending{ID: t.ID, End: EndExited, Code: code, At: time.Now()}
	switch {
	case t.group.OOM():
		t.ending.End = EndOOM
	case t.overdue.Load():
		t.ending.End = EndWall
	}
	t.runner.remember(t.ending)
	t.log(journal.BoxEnded, slog.Int("code", code), slog.String("end", t.ending.End),
		slog.Int64("ms", time.Since(t.Since).Milliseconds()))
	t.learnt()
	t.record(events.Event{Event: journal.BoxEnded.Name, Life: &events.Life{Code: &code, End: t.ending.End}})
}

// Ending tells how the box ended. It is for whoever has seen Attend return
// without an error.
func (t *Turn) Ending() Ending { return t.ending }

// remembered is how many endings a worker can tell of.
const remembered = 256

func (r *Runner) remember(e Ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endings = append(r.endings, e)
	if len(r.endings) > remembered {
		r.endings = append([]Ending(nil), r.endings[len(r.endings)-remembered:]...)
	}
}

// Ended gives the last ending of a box of this name, if it is among the latest.
func (r *Runner) Ended(id string) (Ending, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.endings) - 1; i >= 0; i-- {
		if r.endings[i].ID == id {
			return r.endings[i], true
		}
	}
	return Ending{}, false
}
