package turn

import (
	"log/slog"
	"syscall"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/cgroup"
	"github.com/openmausbot/botbox/worker/internal/events"
	"github.com/openmausbot/botbox/worker/internal/journal"
)

// The ways in which a box ends, as its Ending tells them.
const (
	EndExited = "exited" // the engine ended, or was killed
	EndOOM    = "oom"    // the kernel killed it: its memory ran out
	EndWall   = "wall"   // we ended it: its time was over
	EndIdle   = "idle"   // we ended it: it had done nothing for its idle time
	EndDisk   = "disk"   // we killed it: less was free than it is to leave
	EndUnseen = "unseen" // it ended while no worker lived; the code is -1
)

// Ending is how a box ended.
type Ending struct {
	ID   string    `json:"id"`
	End  string    `json:"end"`
	Code int       `json:"code"`
	At   time.Time `json:"at"`
}

// CanHold says what can bound each thing that boxes of this machine use.
func (r *Runner) CanHold() map[string]string {
	can := map[string]string{"pids": "rlimit", "file": "rlimit", "disk": "sampled", "memory": "none", "cpu": "none"}
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
// own processes, a look at it twice a second, or nothing. Processes are always
// bounded.
func (t *Turn) Holds() map[string]string {
	holds := map[string]string{"pids": "rlimit", "file": "none", "disk": "none", "memory": "none", "cpu": "none"}
	if t.Spec.Limits.MemoryMB > 0 { // or Prepare would have refused
		holds["memory"] = "cgroup"
	}
	if t.Spec.Limits.CPU > 0 {
		holds["cpu"] = "cgroup"
	}
	if t.Spec.Limits.FileMB > 0 {
		holds["file"] = "rlimit"
	}
	if t.Spec.Limits.DiskFreeMB > 0 {
		holds["disk"] = "sampled"
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

// meanings are the words of an end that the box did not choose.
var meanings = map[string]string{
	EndOOM:  "a box ran out of memory",
	EndWall: "a box's time was over",
	EndIdle: "a box had done nothing for its idle time",
	EndDisk: "a box left too little room on the disk",
}

// conclude notes how the box ended. What did not end by itself is a warning,
// which is also read where only those are.
func (t *Turn) conclude(code int) {
	t.ending = Ending{ID: t.ID, End: endOf(code, t.group.OOM(), t.over.Load()), Code: code, At: time.Now()}
	event := journal.BoxEnded
	if means := meanings[t.ending.End]; means != "" {
		event.Level, event.Means = slog.LevelWarn, means
	}
	t.runner.remember(t.ending)
	t.log(event, slog.Int("code", code), slog.String("end", t.ending.End),
		slog.Int64("ms", time.Since(t.Since).Milliseconds()))
	t.learnt()
	t.record(events.Event{Event: journal.BoxEnded.Name, Life: &events.Life{Code: &code, End: t.ending.End}})
}

// endOf: a box may go on without a process that the kernel took from it, when
// the memory that ran out was not its own; then that is not how it ended. ours
// is why we ended it, if we did.
func endOf(code int, oom bool, ours *string) string {
	switch {
	case oom && code == reason.ExitSignalOffset+int(syscall.SIGKILL):
		return EndOOM
	case ours != nil:
		return *ours
	}
	return EndExited
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
