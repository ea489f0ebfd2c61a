package turn

import (
	"maps"
	"strconv"
	"testing"

	"github.com/openmausbot/botbox/worker/internal/spec"
)

func TestTheLatestEndingsAreKept(t *testing.T) {
	r := &Runner{}
	for i := range 3 * remembered {
		r.remember(Ending{ID: strconv.Itoa(i), End: EndExited, Code: i})
	}
	r.remember(Ending{ID: "again", Code: 1})
	r.remember(Ending{ID: "again", Code: 2})
	if e, ok := r.Ended("again"); !ok || e.Code != 2 {
		t.Errorf("of two boxes of one name: %+v, %v", e, ok)
	}
	last := strconv.Itoa(3*remembered - 1)
	if e, ok := r.Ended(last); !ok || e.ID != last {
		t.Errorf("the last one: %+v, %v", e, ok)
	}
	if e, ok := r.Ended("0"); ok {
		t.Errorf("the first of many is kept: %+v", e)
	}
	if len(r.endings) > remembered {
		t.Errorf("%d are kept", len(r.endings))
	}
}

func TestEndOf(t *testing.T) {
	wall := EndWall
	for _, c := range []struct {
		code int
		oom  bool
		ours *string
		want string
	}{
		{0, false, nil, EndExited}, {137, false, nil, EndExited}, {137, true, nil, EndOOM},
		{0, true, nil, EndExited}, // it lost a process, and ended by itself
		{143, false, &wall, EndWall}, {137, true, &wall, EndOOM},
	} {
		if got := endOf(c.code, c.oom, c.ours); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// What bounds a box is said, also when nothing does.
func TestHolds(t *testing.T) {
	for _, c := range []struct {
		limits                  spec.Limits
		memory, cpu, file, disk string
	}{
		{spec.Limits{}, "none", "none", "none", "none"},
		{spec.Limits{MemoryMB: 1}, "cgroup", "none", "none", "none"},
		{spec.Limits{MemoryMB: 1, CPU: 1}, "cgroup", "cgroup", "none", "none"},
		{spec.Limits{FileMB: 1}, "none", "none", "rlimit", "none"},
		{spec.Limits{DiskFreeMB: 1}, "none", "none", "none", "sampled"},
	} {
		turn := &Turn{Spec: spec.Spec{Limits: c.limits}}
		want := map[string]string{"pids": "rlimit", "memory": c.memory, "cpu": c.cpu, "file": c.file, "disk": c.disk}
		if got := turn.Holds(); !maps.Equal(got, want) {
			t.Errorf("%+v: %v", c.limits, got)
		}
	}
	want := map[string]string{"pids": "rlimit", "file": "rlimit", "disk": "sampled", "memory": "none", "cpu": "none"}
	if got := new(Runner).CanHold(); !maps.Equal(got, want) {
		t.Errorf("without a cgroup: %v", got)
	}
}
