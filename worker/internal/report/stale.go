package report

import (
	"fmt"
	"time"
)

// Fresh is how long a run of the self-check speaks for the machine.
const Fresh = 24 * time.Hour

// StaleID stands among the failed checks when the last run is too old.
const StaleID = "stale"

// Basis is what a run of the self-check rests on. A worker reads its settings
// once, and a new worker checks anew, so they cannot change behind a run.
type Basis struct {
	Kernel string `json:"kernel"`
	Bwrap  string `json:"bwrap"` // the program's identity: place, inode, size, time
}

// Age tells how old a moment is: by the wall clock, or by the time that this
// process has lived since, whichever is more. The one can be set; the other
// stands still while the machine sleeps, or is an image on somebody's disk.
// Below zero is a clock that was set back.
func Age(at, now time.Time) time.Duration {
	wall := now.Round(0).Sub(at.Round(0))
	if wall < -time.Minute {
		return wall
	}
	return max(wall, now.Sub(at))
}

// Stale says why a run of the self-check tells nothing of the machine as it
// is now; empty = it does.
func (c Checks) Stale(now time.Time, is Basis) string {
	switch age := Age(c.At, now); {
	case c.Basis.Kernel != is.Kernel:
		return "the kernel has changed since the self-check"
	case c.Basis.Bwrap != is.Bwrap:
		return "bubblewrap has changed since the self-check"
	case age > Fresh:
		return fmt.Sprintf("the self-check is %d hours old", int(age.Hours()))
	case age < 0:
		return "the self-check is of the future: the clock was set back"
	}
	return ""
}

// OnBasis takes the passes of a stale run back. The results stay as they were.
func (r Report) OnBasis(c Checks, now time.Time, is Basis) Report {
	if len(c.Results) == 0 {
		return r
	}
	if r.Stale = c.Stale(now, is); r.Stale != "" {
		r.Checks, r.Failed = fmt.Sprintf("0/%d", len(c.Results)), append(c.Failed(), StaleID)
	}
	return r
}
