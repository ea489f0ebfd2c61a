package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/openmausbot/botbox/worker/internal/events"
	"github.com/openmausbot/botbox/worker/internal/gate"
)

func TestEventLines(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.Local)
	zero := 0
	for want, e := range map[string]events.Event{
		"03:04:05.006     12  box_1                gate-allowed connect  a.example:443                            public       200  up 5 down 70 1.5 ms": {
			Event: "gate-allowed", Box: "box_1", Decision: &events.Decision{Method: "connect", Class: "public", Host: "a.example", Port: 443, Status: 200, Up: 5, Down: 70, Ms: 1.5}},
		"03:04:05.006     12  box_1                gate-refusal http     [2600::1]:80                             not-allowed  403  up 0 down 0 0.0 ms": {
			Event: "gate-refusal", Box: "box_1", Decision: &events.Decision{Method: "http", Class: "not-allowed", Host: "2600::1", Port: 80, Status: 403}},
		"03:04:05.006     12  box_1                gate-refusal -        -                                        malformed    400  up 0 down 0 0.0 ms": {
			Event: "gate-refusal", Box: "box_1", Decision: &events.Decision{Class: "malformed", Status: 400}},
		"03:04:05.006     12  box_1                box-started  claude b-1":       {Event: "box-started", Box: "box_1", Engine: "claude", Bot: "b-1", Life: &events.Life{Pid: 7}},
		"03:04:05.006     12  box_1                box-ended    exited, status 0": {Event: "box-ended", Box: "box_1", Life: &events.Life{End: "exited", Code: &zero}},
		"03:04:05.006     12  -                    box-refused  bad_spec":         {Event: "box-refused", Life: &events.Life{Reason: "bad_spec"}},
		"03:04:05.006     12  -                    dropped      3 events were lost here: this reader was too late for them": {
			Event: "dropped", Dropped: 3},
		"03:04:05.006     12  box_1                box-learnt   2 hosts; would suffice: --allow-host a.example:443 --allow-host b.example:80": {
			Event: "box-learnt", Box: "box_1", Learnt: &gate.Advice{Hosts: 2, Allow: []string{"a.example:443", "b.example:80"}}},
		"03:04:05.006     12  box_1                box-learnt   0 hosts; would suffice: --net none": {Event: "box-learnt", Box: "box_1", Learnt: &gate.Advice{}},
		"03:04:05.006     12  box_1                box-started  acp:[31m":                           {Event: "box-started", Box: "box_1", Engine: "acp:\x1b[31m\n\u202e"},
	} {
		e.Seq, e.Time = 12, at
		if got := eventLine(e); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// What a worker sends cannot make a line of its own, nor speak to a terminal.
func FuzzPrintEvents(f *testing.F) {
	f.Add(`{"seq":1,"event":"gate-allowed","box":"b","verdict":"allowed","host":"a.example","port":443}` + "\n")
	f.Add(`{"event":"box-ended","code":0,"end":"\u001b[2J"}{"event":"x\ny"}`)
	f.Add(`{"learnt":{"hosts":1,"allow":["a\r\n"]}} [] 1`)
	f.Fuzz(func(t *testing.T, text string) {
		var out bytes.Buffer
		err := printEvents(&out, strings.NewReader(text), false)
		if bytes.ContainsFunc(out.Bytes(), func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
			t.Errorf("%q", out.String())
		}
		n := 0
		for d := json.NewDecoder(strings.NewReader(text)); ; n++ {
			var e events.Event
			if d.Decode(&e) != nil {
				break
			}
		}
		if lines := strings.Count(out.String(), "\n"); err == nil && lines < n {
			t.Errorf("%d lines of %d events", lines, n)
		}
		var raw bytes.Buffer
		if printEvents(&raw, strings.NewReader(text), true); err == nil && utf8.ValidString(text) && strings.Count(raw.String(), "\n") < n {
			t.Errorf("%q", raw.String())
		}
	})
}
