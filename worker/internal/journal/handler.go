package journal

import (
	"context"
	"log/slog"
	"slices"
)

// handler is the slog.Handler of a Log.
type handler struct {
	log   *Log
	base  entry  // what WithAttrs gave
	group string // what WithGroup gave, as a prefix of names
}

func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.log.least }

// Handle queues the record. It never waits and never fails.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	e := h.base
	e.fields = slices.Clone(h.base.fields)
	e.time, e.level, e.message = r.Time, r.Level, clean(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		e.add(h.group, a)
		return true
	})
	h.log.queue(e)
	return nil
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.base.fields = slices.Clone(h.base.fields)
	for _, a := range attrs {
		next.base.add(h.group, a)
	}
	return &next
}

func (h *handler) WithGroup(name string) slog.Handler {
	next := *h
	if name != "" {
		next.group += name + "_"
	}
	return &next
}
