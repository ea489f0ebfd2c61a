package gate

import (
	"context"
	"io"
	"sync/atomic"
)

// Budget is how many bytes one box may move through its egress gate: both
// directions of all its connections together, with the heads of requests and
// answers, for a path can carry data out as well as a body can. A nil Budget
// has no end.
//
// Bytes are taken before they are written, so what passes is never more. When
// somebody wants the first byte that is not there, every connection ends.
type Budget struct {
	limit  int64
	left   atomic.Int64 // below 0 once somebody wanted more
	ctx    context.Context
	cancel context.CancelFunc
}

// NewBudget makes a budget of limit bytes; 0 is none. spent is called once
// when it is over.
func NewBudget(limit int64, spent func()) *Budget {
	if limit == 0 {
		return nil
	}
	b := &Budget{limit: limit}
	b.left.Store(limit)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	context.AfterFunc(b.ctx, spent)
	return b
}

// Spend takes bytes that passed under a worker before this one.
func (b *Budget) Spend(used int64) {
	if b != nil {
		b.left.Add(-min(max(used, 0), b.limit))
	}
}

// Used gives the bytes that passed.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	return b.limit - max(0, b.left.Load())
}

// Spent is the refusal of a box whose bytes are used up. It is final: waiting
// gives no new ones.
func Spent() *Refusal {
	return Denied(classBudget, "this box has used up its bytes of egress", "Start a box with a larger net.egress.max_bytes.")
}

// refusal is nil while there are bytes left.
func (b *Budget) refusal() *Refusal {
	if b == nil || b.left.Load() > 0 && !b.Over() {
		return nil
	}
	return Spent()
}

// Over tells whether the connections of the box have been ended.
func (b *Budget) Over() bool { return b != nil && b.ctx.Err() != nil }

// OnOver calls end when the budget is over, also if it is already. What it
// returns takes that back.
func (b *Budget) OnOver(end func()) (stop func() bool) {
	if b == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(b.ctx, end)
}

// take gives how many of n bytes may pass.
func (b *Budget) take(n int) int {
	left := b.left.Add(-int64(n))
	if left >= 0 {
		return n
	}
	return int(max(0, int64(n)+left))
}

// Admit takes n bytes or none. Where they are not there, the budget is over.
func (b *Budget) Admit(n int) bool {
	if b == nil {
		return true
	}
	for {
		left := b.left.Load()
		if left < int64(n) {
			b.cancel()
			return false
		}
		if b.left.CompareAndSwap(left, left-int64(n)) {
			return true
		}
	}
}

// Writer counts what is written to w. The write that wants too much passes on
// what is there, and fails with the refusal.
func (b *Budget) Writer(w io.Writer) io.Writer {
	if b == nil {
		return w
	}
	return metered{w, b}
}

type metered struct {
	w      io.Writer
	budget *Budget
}

func (m metered) Write(p []byte) (n int, err error) {
	pass := m.budget.take(len(p))
	if pass > 0 {
		n, err = m.w.Write(p[:pass])
	}
	if err == nil && pass < len(p) {
		m.budget.cancel()
		err = Spent()
	}
	return n, err
}
