package api

import (
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
)

func TestEventQuery(t *testing.T) {
	for raw, want := range map[string]eventQuery{
		"": {}, "follow=0": {}, "follow=1": {follow: true}, "since=0": {counts: true},
		"since=18446744073709551615&box=box_1&follow=1": {true, "box_1", 1<<64 - 1, true},
	} {
		if got, err := readEventQuery(raw); err != nil || got != want {
			t.Errorf("%q: %+v, %v", raw, got, err)
		}
	}
	for _, raw := range []string{"follow", "follow=2", "since=", "since=18446744073709551616", "box=", "a=1", "box=a&box=b", "%", "a;b"} {
		if got, err := readEventQuery(raw); reason.Of(err).Code != reason.Usage {
			t.Errorf("%q: %+v, %v", raw, got, err)
		}
	}
}

func FuzzEventQuery(f *testing.F) {
	f.Add("follow=1&box=box_1&since=7")
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := readEventQuery(raw)
		if err != nil && reason.Of(err).Code != reason.Usage {
			t.Errorf("%q: %v", raw, err)
		}
		if err == nil && q.since > 0 && !q.counts {
			t.Errorf("%q: %+v", raw, q)
		}
	})
}
