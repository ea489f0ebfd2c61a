package gate

import (
	"sync/atomic"
	"time"

	"github.com/openmausbot/botbox/shared/hostport"
)

// Decision is what a gate tells the log about one request, when it is over.
// It holds nothing of a path, a query or a header.
type Decision struct {
	Seq      uint64 // counts the requests of this gate from 1
	Box      string
	Method   string // "connect", "http", "harness", "socks"; "" where no request could be read
	Host     string // canonical; "" where none could be read
	Port     uint16
	Class    string // the address's or the refusal's
	Allowed  bool   // the gate let it through, whatever became of it
	Status   int    // what the client was answered; 0 where it was gone
	Up, Down int64  // bytes of the tunnel or of the bodies
	Duration time.Duration
}

// Journal makes the decisions of one gate.
type Journal struct {
	Box string
	Log func(Decision) // nil is none; called from many goroutines
	seq atomic.Uint64
}

// Entry is a decision under way.
type Entry struct {
	Decision
	journal *Journal
	start   time.Time
}

// Begin starts an entry for one request.
func (j *Journal) Begin(method string) *Entry {
	return &Entry{Decision{Seq: j.seq.Add(1), Box: j.Box, Method: method}, j, time.Now()}
}

// To notes where the request wants to go.
func (e *Entry) To(h hostport.Host) { e.Host, e.Port = h.Hostname(), h.Port }

// Refuse answers the client and notes the refusal.
func (e *Entry) Refuse(c Stream, r *Refusal, subject string) {
	e.Class, e.Status = r.Class, r.Status
	if r.Class == classBudget { // also in the midst of what was let through
		e.Allowed = false
	}
	r.Answer(c, subject)
}

// End hands the decision to the log.
func (e *Entry) End() {
	if e.journal.Log != nil {
		e.Duration = time.Since(e.start)
		e.journal.Log(e.Decision)
	}
}
