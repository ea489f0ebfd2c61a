package events

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"
)

func seqs(batch []Event) (all []uint64) {
	for _, e := range batch {
		all = append(all, e.Seq)
	}
	return all
}

func TestRing(t *testing.T) {
	r := New(4)
	if batch, lost, more := r.Read(0, 10); batch != nil || lost != 0 || more == nil || r.Last() != 0 {
		t.Errorf("empty: %v, %d", batch, lost)
	}
	for range 3 {
		r.Add(Event{Event: "x"})
	}
	for range 3 {
		r.Add(Event{Event: "y"})
	}
	for _, c := range []struct {
		after uint64
		max   int
		want  string
		lost  uint64
	}{
		{0, 10, "[3,4,5,6]", 2}, {1, 10, "[3,4,5,6]", 1}, {2, 10, "[3,4,5,6]", 0}, {2, 2, "[3,4]", 0}, {5, 10, "[6]", 0}, {6, 10, "null", 0}, {7, 10, "null", 0},
	} {
		batch, lost, more := r.Read(c.after, c.max)
		got, _ := json.Marshal(seqs(batch))
		if string(got) != c.want || lost != c.lost || (more == nil) != (len(batch) > 0) {
			t.Errorf("after %d: %s, lost %d, want %s, %d", c.after, got, lost, c.want, c.lost)
		}
	}
	if r.Last() != 6 {
		t.Errorf("the last is %d", r.Last())
	}
	if New(4).Add(Event{}) != 1 || (*Ring)(nil).Add(Event{}) != 0 {
		t.Error("the first is 1, and no ring counts nothing")
	}
}

func TestAWaitingReaderIsWoken(t *testing.T) {
	r := New(4)
	_, _, more := r.Read(0, 1)
	_, _, same := r.Read(0, 1)
	if more != same {
		t.Error("two readers wait for two things")
	}
	select {
	case <-more:
		t.Error("there is nothing yet")
	default:
	}
	r.Add(Event{})
	select {
	case <-more:
	case <-time.After(10 * time.Second):
		t.Fatal("it still waits")
	}
}

// Writers are never held up, and a reader sees each number once, in order, or
// is told how many it lost.
func TestManyWritersAndASlowReader(t *testing.T) {
	const writers, each = 8, 2000
	r := New(64)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				r.Add(Event{Event: "x"})
			}
		})
	}
	var seen, lost uint64
	for after := uint64(0); after < writers*each; {
		batch, missed, more := r.Read(after, 16)
		lost += missed
		after += missed
		for _, e := range batch {
			if e.Seq != after+1 || e.Event != "x" {
				t.Fatalf("%d (%q) after %d", e.Seq, e.Event, after)
			}
			after++
			seen++
		}
		if more != nil {
			<-more
		}
	}
	wg.Wait()
	if seen+lost != writers*each || seen < 16 {
		t.Errorf("%d seen, %d lost of %d", seen, lost, writers*each)
	}
	t.Logf("%d seen, %d lost", seen, lost)
}

// The line is flat, and read back as it was.
func TestLines(t *testing.T) {
	code := 0
	for want, e := range map[string]Event{
		`{"seq":1,"time":"2026-01-02T03:04:05Z","event":"gate-allowed","box":"b","verdict":"allowed","method":"connect","class":"public","host":"a.example","port":443,"status":200,"up":1,"down":2,"ms":0.5}`: {
			Event: "gate-allowed", Box: "b", Decision: &Decision{"allowed", "connect", "public", "a.example", 443, 200, 1, 2, 0.5}},
		`{"seq":1,"time":"2026-01-02T03:04:05Z","event":"box-ended","box":"b","code":0,"end":"exited"}`: {Event: "box-ended", Box: "b", Life: &Life{Code: &code, End: "exited"}},
		`{"seq":1,"time":"2026-01-02T03:04:05Z","event":"dropped","dropped":3}`:                         {Event: Dropped, Dropped: 3},
	} {
		e.Seq, e.Time = 1, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		b, err := json.Marshal(e)
		if err != nil || string(b) != want {
			t.Errorf("%s, %v, want %s", b, err, want)
		}
		var back Event
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		if again, _ := json.Marshal(back); string(again) != want || strings.Contains(want, "verdict") != (back.Decision != nil) {
			t.Errorf("read back as %s", again)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	r := New(Size)
	e := Event{Event: "gate-allowed", Box: "b", Decision: &Decision{Host: "a.example"}}
	b.ReportAllocs()
	for b.Loop() {
		r.Add(e)
	}
}
