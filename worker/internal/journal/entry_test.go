package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

const stolen = "omb_t0_AbC-dEf_0123456789"

func build(attrs ...slog.Attr) entry {
	var e entry
	for _, a := range attrs {
		e.add("", a)
	}
	return e
}

func TestFieldNames(t *testing.T) {
	for _, tt := range []struct {
		key, want string // "" = refused
	}{
		{"box_id", "BOX_ID"},
		{"EPOCH", "EPOCH"},
		{"a" + strings.Repeat("b", 63), "A" + strings.Repeat("B", 63)},
		{"a" + strings.Repeat("b", 64), ""},
		{"", ""},
		{"1st", ""},
		{"_pid", ""},
		{"a-b", ""},
		{"a b", ""},
		{"a=1\nMESSAGE_ID", ""},
		{"größe", ""},
		{"message", ""},
		{"Message_ID", ""},
		{"priority", ""},
		{"syslog_identifier", ""},
		{"object_pid", ""},
		{"unit", ""},
		{"units", "UNITS"},
		{"event", ""},
		{stolen, ""},
	} {
		e := build(slog.String(tt.key, "v"))
		got := ""
		if len(e.fields) == 1 {
			got = e.fields[0].name
		}
		if got != tt.want || (e.refused == 1) != (tt.want == "") {
			t.Errorf("%q: field %q, %d refused; want %q", tt.key, got, e.refused, tt.want)
		}
	}
	for _, r := range reserved {
		if r.reason == "" {
			t.Errorf("%s: no reason", r.name)
		}
	}
}

func TestFieldsOnce(t *testing.T) {
	e := build(slog.String("a", "1"), slog.String("A", "2"), slog.String("b", "3"))
	if len(e.fields) != 2 || e.fields[0].value != "1" || e.refused != 1 {
		t.Errorf("%+v", e)
	}
	var many []slog.Attr
	for i := range maxFields + 3 {
		many = append(many, slog.Int("n"+strings.Repeat("x", i), i))
	}
	if e := build(many...); len(e.fields) != maxFields || e.refused != 3 {
		t.Errorf("%d fields, %d refused", len(e.fields), e.refused)
	}
}

func TestValues(t *testing.T) {
	long := strings.Repeat("é", maxValue) // two bytes each
	for _, tt := range []struct {
		attr slog.Attr
		want string
	}{
		{slog.String("k", "plain"), "plain"},
		{slog.Int("k", 7), "7"},
		{slog.Any("k", errors.New("why")), "why"},
		{slog.Any("k", nil), "<nil>"},
		{slog.Time("k", time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))), "2026-01-02T02:04:05Z"},
		{slog.Any("k", secret.New("hidden")), secret.Redacted},
		{slog.Any("k", struct{ S secret.Text }{secret.New("hidden")}), "{" + secret.Redacted + "}"},
		{slog.String("k", "GET /b/"+stolen+"/x and "+stolen), "GET /b/[token]/x and [token]"},
		{slog.String("k", "omb_t0_ alone"), "omb_t0_ alone"},
		{slog.String("k", strings.Repeat("a", maxValue)), strings.Repeat("a", maxValue)},
		{slog.String("k", "x"+long), "x" + long[:4092] + cutMark}, // the cut is between two runes
		{slog.String("k", long), long[:4092] + cutMark},           // the cut is in one
		{slog.String("k", strings.Repeat("a", maxValue-10)+stolen), strings.Repeat("a", maxValue-10) + "[token]"},
	} {
		e := build(tt.attr)
		if len(e.fields) != 1 || e.fields[0].value != tt.want {
			t.Errorf("%.40v: %.80q, want %.80q", tt.attr, e.fields, tt.want)
		}
		if n := len(e.fields[0].value); n > maxValue {
			t.Errorf("%.40v: %d bytes", tt.attr, n)
		}
	}
}

func TestEvents(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Events() {
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(e.ID) || seen[e.ID] || seen[e.Name] || e.Name == "" || e.Means == "" {
			t.Errorf("%+v: no ID of 32 hex digits, or not its own", e)
		}
		seen[e.ID], seen[e.Name] = true, true
	}
}

// buffer is a writer that a test reads while the log writes.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func logged(t *testing.T, mode string, do func(*slog.Logger)) string {
	t.Helper()
	var out buffer
	l, err := Open(mode, &out)
	if err != nil {
		t.Fatal(err)
	}
	do(slog.New(l.Handler()))
	l.Close(time.Minute)
	return out.String()
}

func TestLines(t *testing.T) {
	do := func(l *slog.Logger) {
		l.Debug("left out")
		l = l.With("bot", "b 1").WithGroup("net")
		l.Info("two\nlines", "port", 443, slog.Group("peer", "ip", "::1"), "bad name", 1)
		BoxStarted.Log(slog.New(l.Handler().WithGroup("")), slog.String("box_id", "x"))
	}
	text := regexp.MustCompile(`(?m)^\S+`).ReplaceAllString(logged(t, "text", do), "T")
	want := `T info "two\nlines" bot="b 1" net_port=443 net_peer_ip=::1 fields_refused=1` + "\n" +
		`T info a box has started event=box-started bot="b 1" net_box_id=x` + "\n"
	if text != want {
		t.Errorf("text:\n%s\nwant:\n%s", text, want)
	}
	lines := strings.Split(strings.TrimSpace(logged(t, "json", do)), "\n")
	var got map[string]string
	if len(lines) != 2 || json.Unmarshal([]byte(lines[0]), &got) != nil {
		t.Fatalf("json: %q", lines)
	}
	if _, err := time.Parse(time.RFC3339Nano, got["time"]); err != nil || got["message"] != "two\nlines" || got["level"] != "info" || got["net_peer_ip"] != "::1" {
		t.Errorf("json: %v %v", got, err)
	}
}

// A handler that was given attributes must not share them with its children.
func TestWithAttrsCopies(t *testing.T) {
	out := logged(t, "text", func(l *slog.Logger) {
		l = l.With("a", 1, "b", 2, "c", 3)
		x, y := l.With("x", 1), l.With("y", 2)
		x.Info("first")
		y.Info("second")
	})
	if !strings.Contains(out, "first a=1 b=2 c=3 x=1\n") || !strings.Contains(out, "second a=1 b=2 c=3 y=2\n") {
		t.Error(out)
	}
}

func TestModeRefused(t *testing.T) {
	for _, mode := range []string{"", "AUTO", "syslog"} {
		if _, err := Open(mode, nil); reason.Of(err).Code != reason.BadSetting || !strings.Contains(err.Error(), "OMB_LOG") {
			t.Errorf("%q: %v", mode, err)
		}
	}
}

// A log that cannot keep up must not hold up the worker, and must say so.
func TestNeverWaits(t *testing.T) {
	var got []entry
	gate := make(chan struct{})
	l := start(func(e entry) { <-gate; got = append(got, e) })
	log := slog.New(l.Handler())
	const n = depth + 500
	for range n { // would never end if Handle waited
		log.Info("x")
	}
	dropped := l.Dropped()
	if dropped == 0 {
		t.Fatal("nothing was dropped")
	}
	l.Close(time.Millisecond) // nor does Close wait longer than told
	log.Info("after the end")
	close(gate)
	<-l.done
	said := 0
	for _, e := range got {
		if len(e.fields) == 1 && e.fields[0].name == "DROPPED" {
			said++
			if e.fields[0].value == "0" {
				t.Error("said that nothing was dropped")
			}
		}
	}
	if lines := len(got) - said; said == 0 || uint64(lines)+dropped != n {
		t.Errorf("%d written, %d dropped, %d in all; said so %d times", lines, dropped, n, said)
	}
}

func FuzzLine(f *testing.F) {
	f.Add("message", "key", "value")
	f.Add("two\nlines", "a=1\nMESSAGE_ID", "\x1b[31m"+stolen)
	f.Add("\xff", "event", "\u2028")
	f.Fuzz(func(t *testing.T, message, key, value string) {
		e := build(slog.String(key, value))
		e.message = clean(message)
		line := textLine(e)
		if strings.ContainsAny(line, "\n\r\x1b") {
			t.Errorf("more than one plain line: %q", line)
		}
		if !json.Valid([]byte(jsonLine(e))) || strings.Contains(jsonLine(e), "\n") {
			t.Errorf("not one JSON line: %q", jsonLine(e))
		}
		for name, v := range variables(e) {
			if !fieldName().MatchString(name) || name == "MESSAGE" || name == "PRIORITY" || len(v) > maxValue {
				t.Errorf("field %q of %d bytes", name, len(v))
			}
			line += "\n" + v // fields of their own: no token can reach over two
		}
		if token().MatchString(line) {
			t.Errorf("a token is left: %q", line)
		}
	})
}
