package journal

import (
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// depth is how many entries wait for a slow journal before the next is
// dropped: a few seconds of a busy worker, about 1 MB at the usual length.
const depth = 1024

// Log writes entries in the order in which they were queued.
type Log struct {
	sink    sink
	least   slog.Level // what is below is left out
	entries chan entry
	dropped atomic.Uint64
	quit    chan struct{} // closed by Close
	done    chan struct{} // closed when the last entry is written
	once    sync.Once
}

// Open decides by mode, which is the value of OMB_LOG, where the log goes:
//
//	auto     the journal when stderr is one of its streams, else text
//	journal  the journal; an error when there is none
//	text     one line each on stderr
//	json     one JSON object a line on stderr
//
// With +debug behind it, records of the level Debug are written, too.
//
// The decision is made once. An entry that the journal does not take is
// written to stderr as text.
func Open(mode string, stderr io.Writer) (*Log, error) {
	mode, debug := strings.CutSuffix(mode, Debug)
	s, err := choose(mode, stderr)
	if err != nil {
		return nil, err
	}
	l := start(s)
	if debug {
		l.least = slog.LevelDebug
	}
	return l, nil
}

func start(s sink) *Log {
	l := &Log{sink: s, entries: make(chan entry, depth), quit: make(chan struct{}), done: make(chan struct{})}
	go l.write()
	return l
}

// Hush leaves everything below a warning out, unless the log goes somewhere
// that was asked for: a box's own words share the stderr that is left.
func (l *Log) Hush(mode string) {
	if mode == "auto" && !intoJournal() {
		l.least = slog.LevelWarn
	}
}

// Debug stands behind a mode that shall leave nothing out.
const Debug = "+debug"

// Handler gives the slog.Handler that writes here. Records below Info are
// left out, unless the mode said otherwise.
func (l *Log) Handler() slog.Handler { return &handler{log: l} }

// Dropped gives the number of entries that were dropped since the log last
// said so itself.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// Close writes what is queued, for at most the given time. What is logged
// after it is dropped.
func (l *Log) Close(limit time.Duration) {
	l.once.Do(func() { close(l.quit) })
	select {
	case <-l.done:
	case <-time.After(limit):
	}
}

func (l *Log) queue(e entry) {
	select {
	case <-l.quit:
		l.dropped.Add(1)
		return
	default:
	}
	select {
	case l.entries <- e:
	default:
		l.dropped.Add(1)
	}
}

func (l *Log) write() {
	defer close(l.done)
	for {
		select {
		case e := <-l.entries:
			l.sink(e)
			l.confess()
		case <-l.quit:
			if len(l.entries) == 0 {
				l.confess()
				return
			}
		}
	}
}

// confess logs how many entries were dropped since it last did.
func (l *Log) confess() {
	n := l.dropped.Swap(0)
	if n == 0 {
		return
	}
	e := entry{time: time.Now(), level: slog.LevelWarn, message: "log entries were dropped, because the log was too slow"}
	e.add("", slog.Uint64("dropped", n))
	l.sink(e)
}
