package journal

import (
	"encoding/json"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-systemd/v22/journal"

	"github.com/openmausbot/botbox/shared/reason"
)

// Identifier is the journal's SYSLOG_IDENTIFIER: journalctl -t botbox.
const Identifier = "botbox"

// sink writes one entry.
type sink func(entry)

func choose(mode string, stderr io.Writer) (sink, error) {
	text := lines(stderr, textLine)
	switch mode {
	case "auto":
		if intoJournal() {
			return native(text), nil
		}
		return text, nil
	case "journal":
		if !journal.Enabled() {
			return nil, reason.New(reason.BadSetting, "OMB_LOG asks for the journal, and none listens on this machine")
		}
		return native(text), nil
	case "text":
		return text, nil
	case "json":
		return lines(stderr, jsonLine), nil
	}
	return nil, reason.New(reason.BadSetting, "OMB_LOG must be auto, journal, text or json, with or without +debug")
}

// intoJournal tells whether stderr is a stream of the journal's. A
// JOURNAL_STREAM that cannot be read names no stream of ours.
func intoJournal() bool {
	stream, err := journal.StderrIsJournalStream()
	return err == nil && stream && journal.Enabled()
}

// native sends to the journal, and what it does not take to otherwise. Send
// blocks while a stopped journal's socket is full; that holds up the log only.
func native(otherwise sink) sink {
	return func(e entry) {
		if journal.Send(e.message, priority(e.level), variables(e)) != nil {
			otherwise(e)
		}
	}
}

// priority gives the syslog severity of a level.
func priority(level slog.Level) journal.Priority {
	switch {
	case level >= slog.LevelError:
		return journal.PriErr
	case level >= slog.LevelWarn:
		return journal.PriWarning
	case level >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}

// variables gives the journal's fields but MESSAGE and PRIORITY, which Send
// adds. No name in it comes unchecked from a record.
func variables(e entry) map[string]string {
	vars := map[string]string{"SYSLOG_IDENTIFIER": Identifier}
	for _, f := range e.extended() {
		vars[f.name] = f.value
	}
	if e.event.ID != "" {
		vars["MESSAGE_ID"] = e.event.ID
	}
	return vars
}

// extended gives the fields with those that the entry itself brings.
func (e *entry) extended() []field {
	var all []field
	if e.event.Name != "" {
		all = append(all, field{"EVENT", e.event.Name})
	}
	all = append(all, e.fields...)
	if e.refused > 0 {
		all = append(all, field{"FIELDS_REFUSED", strconv.Itoa(e.refused)})
	}
	return all
}

// lines writes each entry with one Write call.
func lines(w io.Writer, format func(entry) string) sink {
	return func(e entry) { io.WriteString(w, format(e)+"\n") }
}

// textLine gives: time level message name=value …
func textLine(e entry) string {
	var b strings.Builder
	b.WriteString(e.time.UTC().Format(time.RFC3339) + " " + strings.ToLower(e.level.String()) + " " + oneLine(e.message, ""))
	for _, f := range e.extended() {
		b.WriteString(" " + strings.ToLower(f.name) + "=" + oneLine(f.value, " \"="))
	}
	return b.String()
}

// oneLine quotes s if it holds one of the special characters or anything that
// a terminal would not just show.
func oneLine(s, special string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) ||
		strings.ContainsAny(s, special) || (s == "" && special != "") {
		return strconv.Quote(s)
	}
	return s
}

func jsonLine(e entry) string {
	object := map[string]string{
		"time":    e.time.UTC().Format(time.RFC3339Nano),
		"level":   strings.ToLower(e.level.String()),
		"message": e.message,
	}
	for _, f := range e.extended() {
		object[strings.ToLower(f.name)] = f.value
	}
	line, _ := json.Marshal(object) // strings always encode
	return string(line)
}
