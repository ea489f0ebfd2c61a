package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/events"
)

// eventQuery is what GET /v1/events is asked for.
type eventQuery struct {
	follow bool
	box    string // "" is all boxes, and what belongs to none
	since  uint64 // events after this one
	counts bool   // since was given: what is no longer there is told
}

func readEventQuery(raw string) (q eventQuery, err error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, reason.New(reason.Usage, "the query cannot be read")
	}
	for name, all := range values {
		value := all[0]
		switch {
		case len(all) > 1:
			return q, reason.New(reason.Usage, "the query has %q twice", name)
		case name == "follow" && (value == "0" || value == "1"):
			q.follow = value == "1"
		case name == "box" && value != "":
			q.box = value
		case name == "since":
			if q.since, err = strconv.ParseUint(value, 10, 64); err != nil {
				return q, reason.New(reason.Usage, "since is the number of an event")
			}
			q.counts = true
		default:
			return q, reason.New(reason.Usage, "the query takes follow=0|1, box=ID and since=NUMBER").WithHint("correct the query")
		}
	}
	return q, nil
}

// batch is how many events are taken from the ring at once.
const batch = 256

// events writes the events there are, a JSON object a line, and with follow=1
// those that come, until the caller or the worker goes. A number from the
// future is of a worker that was here before: such a caller gets all there is.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	q, err := readEventQuery(r.URL.RawQuery)
	if err != nil {
		fail(w, err)
		return
	}
	if q.since > s.Runner.Events.Last() {
		q.since = 0
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, flush := json.NewEncoder(w), http.NewResponseController(w).Flush
	for {
		list, lost, more := s.Runner.Events.Read(q.since, batch)
		if lost > 0 && q.counts {
			out.Encode(events.Event{Seq: q.since + lost, Time: time.Now().UTC(), Event: events.Dropped, Dropped: lost})
		}
		q.since += lost
		q.counts = true // from here on the caller was there
		for _, e := range list {
			if q.box == "" || q.box == e.Box {
				out.Encode(e)
			}
			q.since = e.Seq
		}
		if err := flush(); err != nil || more != nil && !q.follow {
			return
		}
		if more == nil {
			continue
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// why says what a box's gate would answer for a host: GET
// /v1/boxes/{id}/why?host=HOST[:PORT], 443 if there is no port.
func (s *Server) why(r *http.Request) (any, error) {
	h, err := hostport.ParseDefault(r.URL.Query().Get("host"), 443)
	if err != nil {
		return nil, reason.New(reason.Usage, "host is no HOST[:PORT]: %w", err)
	}
	t, err := s.Runner.Find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return t.Judge(h)
}
