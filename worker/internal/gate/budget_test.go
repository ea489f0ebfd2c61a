package gate

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestBudgetPassesWhatThereIsAndNoMore(t *testing.T) {
	over := make(chan struct{})
	b := NewBudget(10, func() { close(over) })
	var out bytes.Buffer
	w := b.Writer(&out)
	for _, step := range []struct {
		n    int
		fine bool
	}{{4, true}, {6, true}} {
		if n, err := w.Write(make([]byte, step.n)); n != step.n || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if b.Over() || b.refusal() == nil || b.Used() != 10 {
		t.Errorf("at the end: over %v, %v, used %d", b.Over(), b.refusal(), b.Used())
	}
	n, err := w.Write([]byte("x"))
	if r, ok := err.(*Refusal); n != 0 || !ok || r.Class != "budget" || r.Status != 403 {
		t.Errorf("%d, %v", n, err)
	}
	<-over
	if out.Len() != 10 || b.Used() != 10 {
		t.Errorf("%d bytes passed, %d used", out.Len(), b.Used())
	}
	short := NewBudget(10, func() {})
	if n, err := short.Writer(io.Discard).Write(make([]byte, 25)); n != 10 || err == nil {
		t.Errorf("a write beyond the end: %d, %v", n, err)
	}
	whole := NewBudget(10, func() {})
	if !whole.Admit(7) || whole.Admit(4) || !whole.Over() || whole.refusal() == nil {
		t.Error("a head passes in part, or the budget is not over")
	}
}

func TestNoBudget(t *testing.T) {
	b := NewBudget(0, nil)
	if b != nil || b.refusal() != nil || b.Over() || !b.Admit(1<<30) || b.Used() != 0 || b.Writer(io.Discard) != io.Discard {
		t.Error("no budget counts")
	}
	b.OnOver(func() { t.Error("it is over") })()
}

// However many want it at once, no byte passes twice.
func TestBudgetOfManyWriters(t *testing.T) {
	const limit = 1 << 20
	var calls, passed atomic.Int64
	over := make(chan struct{})
	b := NewBudget(limit, func() { calls.Add(1); close(over) })
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			w := b.Writer(io.Discard)
			for {
				n, err := w.Write(make([]byte, 1000+i))
				passed.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	<-over
	if passed.Load() != limit || b.Used() != limit || calls.Load() != 1 {
		t.Errorf("%d bytes passed, %d used, told %d times; want %d", passed.Load(), b.Used(), calls.Load(), limit)
	}
}

// The byte that is not there ends its own tunnel and a quiet one; all that was
// there is delivered.
func TestBudgetEndsEveryTunnel(t *testing.T) {
	const limit = 3 << 20
	b := NewBudget(limit, func() {})
	quietClient, near := pair(t)
	far, _ := pair(t)
	ended := make(chan struct{})
	go func() { b.Tunnel(near, far, time.Minute); close(ended) }()
	client, busyNear := pair(t)
	busyFar, origin := pair(t)
	go b.Tunnel(busyNear, busyFar, time.Minute)
	go origin.Write(bytes.Repeat([]byte("x"), 2*limit))
	got, _ := io.ReadAll(client)
	if len(got) != limit {
		t.Errorf("%d bytes were delivered, want %d", len(got), limit)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the quiet tunnel goes on")
	}
	if _, err := quietClient.Read(make([]byte, 1)); err == nil {
		t.Error("the quiet client still reads")
	}
	if b.Used() != limit {
		t.Errorf("used %d", b.Used())
	}
}

// What counting adds to one write of the copy loop, which moves up to 256 KiB.
func BenchmarkBudget(b *testing.B) {
	w := NewBudget(1<<62, func() {}).Writer(io.Discard)
	p := make([]byte, 1)
	b.ReportAllocs()
	for b.Loop() {
		w.Write(p)
	}
}

// What passed under an earlier worker is not there any more.
func TestBudgetGoesOnWhereItWas(t *testing.T) {
	for used, admits := range map[int64]bool{0: true, 90: true, 91: false, 100: false, 1 << 60: false, -5: true} {
		b := NewBudget(100, func() {})
		b.Spend(used)
		if got := b.Admit(10); got != admits {
			t.Errorf("after %d of 100, 10 more: %v", used, got)
		}
		if u := b.Used(); u < 0 || u > 100 {
			t.Errorf("after %d: used %d", used, u)
		}
	}
	var none *Budget
	none.Spend(5)
}
