package turn

import (
	"syscall"
	"time"
)

// watch ends the box when one of its limits is over that no kernel holds. What
// it returns ends the watch.
func (t *Turn) watch() (stop func()) {
	quit := make(chan struct{})
	l := t.Spec.Limits
	if l.WallS > 0 {
		go t.look(quit, time.Duration(l.WallS)*time.Second, func() bool { return true }, EndWall)
	}
	if t.idle != nil {
		go t.look(quit, t.idle.every(), t.idle.over, EndIdle)
	}
	if l.DiskFreeMB > 0 && len(t.Kit.Disks) > 0 {
		go t.look(quit, glance, t.diskFull, EndDisk)
	}
	if t.kept != "" && t.counts() {
		go t.note(quit)
	}
	return func() { close(quit) }
}

// look looks again and again, until it is over or nobody wants to know.
func (t *Turn) look(quit <-chan struct{}, every time.Duration, over func() bool, end string) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-quit:
			return
		case <-ticker.C:
		}
		found := over()
		select {
		case <-quit: // then what was found is of a box that had ended
			return
		default:
		}
		if found {
			t.overdue(end)
			return
		}
	}
}

// grace is what an engine has to end by itself once its time is over.
const grace = 5 * time.Second

// overdue ends the box for a reason, of which the first one counts: asked
// first, and then killed. One that fills the disk is not asked.
func (t *Turn) overdue(why string) {
	t.over.CompareAndSwap(nil, &why)
	if why != EndDisk {
		t.Signal(syscall.SIGTERM)
		select {
		case <-t.ended: // and its name may be another's by now
			return
		case <-time.After(grace):
		}
	}
	t.Kill()
}
