package turn

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// glance is the time between two looks at what is left on the disks. What a
// disk takes in it comes off the limit.
const glance = 500 * time.Millisecond

// checkDisk refuses a box that would have to end at once.
func (t *Turn) checkDisk() error {
	if free, where := t.freeMB(); free < int64(t.Spec.Limits.DiskFreeMB) {
		return reason.New(reason.LimitsUnavailable, "%d MB are free where %s is, and this box is to leave %d", free, where, t.Spec.Limits.DiskFreeMB).
			WithHint("make room there, or lower limits.disk_free_mb")
	}
	return nil
}

// freeMB is what is left for an ordinary user on the fullest of the file
// systems that the box can write. One that does not answer has nothing left.
func (t *Turn) freeMB() (free int64, where string) {
	free = 1 << 62
	for _, f := range t.Kit.Disks {
		var st unix.Statfs_t
		if unix.Fstatfs(int(f.Fd()), &st) != nil {
			return 0, f.Name()
		}
		if mb := int64(st.Bavail) * st.Frsize >> 20; mb < free {
			free, where = mb, f.Name()
		}
	}
	return free, where
}

func (t *Turn) diskFull() bool {
	free, _ := t.freeMB()
	return free < int64(t.Spec.Limits.DiskFreeMB)
}
