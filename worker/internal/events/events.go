package events

import (
	"sync"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

// Size is how many events a worker keeps.
const Size = 4096

// Event is one line. Which of the embedded parts is there depends on its name.
type Event struct {
	Seq   uint64    `json:"seq"` // counts this worker's events from 1, without a gap
	Time  time.Time `json:"time"`
	Event string    `json:"event"` // as in the journal: gate-allowed, gate-refusal, box-started, …
	Box   string    `json:"box,omitempty"`

	Bot          string `json:"bot,omitempty"`
	Conversation string `json:"conversation,omitempty"`
	Engine       string `json:"engine,omitempty"`

	*Decision
	*Life

	Learnt  *gate.Advice `json:"learnt,omitempty"`  // box-learnt
	Dropped uint64       `json:"dropped,omitempty"` // dropped: events before this one that the reader was too late for
}

// Decision is what a gate decided about one request, when it is over.
type Decision struct {
	Verdict string  `json:"verdict"` // allowed, refused
	Method  string  `json:"method"`  // connect, http, harness, socks; empty where no request could be read
	Class   string  `json:"class"`   // the address's or the refusal's
	Host    string  `json:"host"`
	Port    uint16  `json:"port"`
	Status  int     `json:"status"` // what the client was answered; 0 = nothing, or a success of SOCKS
	Up      int64   `json:"up"`     // bytes
	Down    int64   `json:"down"`
	Ms      float64 `json:"ms"`
}

// Life is what became of a box.
type Life struct {
	Pid    int    `json:"pid,omitempty"`    // box-started, box-returned: the engine's
	Code   *int   `json:"code,omitempty"`   // box-ended: the exit status
	End    string `json:"end,omitempty"`    // box-ended: exited, oom, wall, idle, disk, unseen
	Reason string `json:"reason,omitempty"` // box-refused: the code
}

// Dropped names the event that a reader gets in place of those it lost.
const Dropped = "dropped"

// Ring keeps the latest events. A nil Ring keeps none.
type Ring struct {
	size  int
	mu    sync.Mutex
	slots []Event       // the event seq is at (seq-1) % size
	last  uint64        // the sequence number of the newest event
	wake  chan struct{} // closed by the next event; nil where nobody waits
}

// New makes a ring of size events.
func New(size int) *Ring { return &Ring{size: size} }

// Add numbers the event, keeps it and gives the number.
func (r *Ring) Add(e Event) uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	e.Seq, e.Time = r.last, time.Now().UTC()
	if len(r.slots) < r.size {
		r.slots = append(r.slots, e)
	} else {
		r.slots[(e.Seq-1)%uint64(r.size)] = e
	}
	if r.wake != nil {
		close(r.wake)
		r.wake = nil
	}
	return e.Seq
}

// Last gives the number of the newest event, 0 before the first.
func (r *Ring) Last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Read gives the oldest events that are newer than after, at most max, and how
// many between are no longer there. Without any, more is closed when there is
// one.
func (r *Ring) Read(after uint64, max int) (batch []Event, lost uint64, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := r.last - uint64(len(r.slots)) // the one before it
	if after < oldest {
		after, lost = oldest, oldest-after
	}
	if after >= r.last {
		if r.wake == nil {
			r.wake = make(chan struct{})
		}
		return nil, lost, r.wake
	}
	for seq := after + 1; seq <= r.last && len(batch) < max; seq++ {
		batch = append(batch, r.slots[(seq-1)%uint64(r.size)])
	}
	return batch, lost, nil
}
