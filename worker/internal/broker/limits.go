package broker

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// defaultConcurrent is how many requests of one grant may be open at a time.
const defaultConcurrent = 32

// Limits bound what one turn can do with one grant. 0 is the default of each:
// 32 requests at a time, and no other bound. A worker that takes a token over
// begins the minute anew; bytes and tokens go on (Spend).
type Limits struct {
	Concurrent int   // open requests
	PerMinute  int   // requests
	Bytes      int64 // of bodies, both ways
	Tokens     int64 // in and out, as the provider's answers tell
}

// meter is a grant's limits and what was used of them.
type meter struct {
	limits Limits
	bytes  atomic.Int64

	mu     sync.Mutex
	open   int
	ready  float64   // requests that may begin now, up to PerMinute
	at     time.Time // when ready was right
	tokens int64
}

func newMeter(l Limits) *meter {
	if l.Concurrent == 0 {
		l.Concurrent = defaultConcurrent
	}
	return &meter{limits: l, ready: float64(l.PerMinute)}
}

// begin counts a request that starts, or gives the code of its refusal and
// after how long another try makes sense: 0 is never.
func (m *meter) begin(now time.Time) (code string, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.limits.Bytes > 0 && m.bytes.Load() >= m.limits.Bytes:
		return "limit_bytes", 0
	case m.limits.Tokens > 0 && m.tokens >= m.limits.Tokens:
		return "limit_tokens", 0
	case m.open >= m.limits.Concurrent:
		return "limit_concurrent", time.Second
	}
	if m.limits.PerMinute > 0 {
		perSecond := float64(m.limits.PerMinute) / 60
		if !m.at.IsZero() {
			m.ready = math.Min(float64(m.limits.PerMinute), m.ready+now.Sub(m.at).Seconds()*perSecond)
		}
		m.at = now
		if m.ready < 1 {
			return "limit_requests", time.Duration((1 - m.ready) / perSecond * float64(time.Second))
		}
		m.ready--
	}
	m.open++
	return "", 0
}

func (m *meter) end() {
	m.mu.Lock()
	m.open--
	m.mu.Unlock()
}

// pass counts bytes of a body. false: the limit is used up.
func (m *meter) pass(n int) bool {
	used := m.bytes.Add(int64(n))
	return m.limits.Bytes == 0 || used <= m.limits.Bytes
}

func (m *meter) spend(tokens int64) {
	m.mu.Lock()
	m.tokens += tokens
	m.mu.Unlock()
}

// wholeSeconds is a Retry-After: never less than the wait.
func wholeSeconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
