package journal

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// maxValue bounds each value and the message: journalctl -o json shows
	// null in place of a longer one.
	maxValue = 4096
	// maxFields keeps a whole entry in one datagram. A larger one would go
	// through a file in /dev/shm, which a hardened unit may not have.
	maxFields = 32
	cutMark   = "…"
)

// fieldName is stricter than the journal's own rule by the underscore in
// front, with which it marks the fields that it vouches for. The expressions
// are compiled at their first use: `botbox run` starts without them.
var fieldName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`) })

// reserved are names that mean something to the journal or to our own lines.
// A name that ends in "_" stands for all that begin so.
var reserved = []struct{ name, reason string }{
	{"MESSAGE", "the line's text"},
	{"MESSAGE_ID", "set by an Event only"},
	{"PRIORITY", "set by the record's level only"},
	{"SYSLOG_", "who the line is from"},
	{"OBJECT_", "from root, the journal adds what it knows of that process"},
	{"COREDUMP_", "coredumpctl takes the line for a crash"},
	{"UNIT", "systemctl status shows the line under that unit"},
	{"USER_UNIT", "systemctl status shows the line under that unit"},
	{"TIME", "a column of our own lines"},
	{"LEVEL", "a column of our own lines"},
	{"EVENT", "set by an Event only"},
	{"FIELDS_REFUSED", "counts the refusals of this table"},
}

// token is a broker token, wherever it stands in a text.
var token = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`omb_t0_[A-Za-z0-9_-]+`) })

// Scrub replaces every broker token in s.
func Scrub(s string) string { return token().ReplaceAllLiteralString(s, "[token]") }

// field is one name, in the journal's spelling, with its value.
type field struct{ name, value string }

// entry is one record, ready to be written.
type entry struct {
	time    time.Time
	level   slog.Level
	message string
	event   Event // the zero Event = none
	fields  []field
	refused int // fields left out
}

// add puts a into the entry, or counts it as refused. group is the prefix of
// the name.
func (e *entry) add(group string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "_"
		}
		for _, inner := range v.Group() {
			e.add(group, inner)
		}
		return
	}
	if a.Equal(slog.Attr{}) {
		return
	}
	if event, ok := v.Any().(Event); ok {
		e.event = event
		return
	}
	name := strings.ToUpper(group + a.Key)
	if Scrub(group+a.Key) != group+a.Key || !usable(name) || e.has(name) || len(e.fields) >= maxFields {
		e.refused++
		return
	}
	e.fields = append(e.fields, field{name, clean(text(v))})
}

func (e *entry) has(name string) bool {
	return slices.ContainsFunc(e.fields, func(f field) bool { return f.name == name })
}

// usable tells whether a field may have this name.
func usable(name string) bool {
	for _, r := range reserved {
		if name == r.name || (strings.HasSuffix(r.name, "_") && strings.HasPrefix(name, r.name)) {
			return false
		}
	}
	return fieldName().MatchString(name)
}

// text gives a value as a person reads it.
func text(v slog.Value) string {
	if v.Kind() == slog.KindTime {
		return v.Time().UTC().Format(time.RFC3339Nano)
	}
	if v.Kind() == slog.KindAny {
		return fmt.Sprint(v.Any())
	}
	return v.String()
}

// clean takes out tokens and what is too long. Tokens go first, so no half of
// one is left at the cut.
func clean(s string) string {
	s = Scrub(s)
	if len(s) <= maxValue {
		return s
	}
	cut := maxValue - len(cutMark)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + cutMark
}
