package cli

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/events"
	"github.com/openmausbot/botbox/worker/internal/gate"
)

// logsVerb prints the worker's events. With -f it goes on until the worker, or
// this process, ends.
func logsVerb(c *call, args []string) (int, error) {
	var follow, asJSON, ofBroker bool
	var box string
	rest, err := c.parse("logs", args, func(set *flag.FlagSet) {
		set.BoolVar(&follow, "f", false, "go on with what happens from now on")
		set.StringVar(&box, "box", "", "only what belongs to the box `ID`")
		set.BoolVar(&asJSON, "json", false, "print each event as the JSON object that the worker sent")
		set.BoolVar(&ofBroker, "broker", false, "what `botbox audit` prints: each request to the credential broker")
	})
	if err == nil {
		err = noWords(rest)
	}
	if err == nil && ofBroker && (follow || box != "") {
		err = reason.New(reason.Usage, "--broker prints a file: -f and --box do not go with it")
	}
	if err != nil {
		return 0, err
	}
	if ofBroker {
		return c.audit(false, asJSON)
	}
	query := url.Values{}
	if follow {
		query.Set("follow", "1")
	}
	if box != "" {
		query.Set("box", box)
	}
	resp, err := c.client().Get("http://worker/v1/events?" + query.Encode())
	if err != nil {
		return 0, c.noWorker(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, readAnswer(resp, nil)
	}
	if err := printEvents(c.stdout, resp.Body, asJSON); err != nil || !follow {
		return 0, err
	}
	return 0, reason.New(reason.NoWorker, "the worker has ended, and its events with it")
}

// printEvents copies the lines. Each is written at once, for somebody may be
// waiting behind a pipe.
func printEvents(w io.Writer, from io.Reader, asJSON bool) error {
	lines := json.NewDecoder(from)
	for {
		var raw json.RawMessage
		err := lines.Decode(&raw)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // the worker ended; a cut line is none
		}
		if err != nil {
			return reason.New(reason.System, "read the worker's events: %w", err)
		}
		text := string(raw)
		if !asJSON {
			var e events.Event
			if err := json.Unmarshal(raw, &e); err != nil {
				return reason.New(reason.VersionSkew, "the worker's events cannot be read: %w", err)
			}
			text = eventLine(e)
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return nil // nobody reads any more
		}
	}
}

// eventLine is one event in columns. No byte of it that a terminal would obey
// gets through.
func eventLine(e events.Event) string {
	b := fmt.Sprintf("%s %6d  %-20s %-12s ", e.Time.Local().Format("15:04:05.000"), e.Seq, orDash(e.Box), e.Event)
	switch {
	case e.Decision != nil:
		d := e.Decision
		to := "-"
		if d.Host != "" {
			to = net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
		}
		b += fmt.Sprintf("%-8s %-40s %-12s %3d  up %d down %d %.1f ms", orDash(d.Method), to, d.Class, d.Status, d.Up, d.Down, d.Ms)
	case e.Event == events.Dropped:
		b += fmt.Sprintf("%d events were lost here: this reader was too late for them", e.Dropped)
	case e.Learnt != nil && len(e.Learnt.Allow) == 0:
		b += "0 hosts; would suffice: --net none"
	case e.Learnt != nil:
		b += fmt.Sprintf("%d hosts; would suffice: --allow-host %s", e.Learnt.Hosts, strings.Join(e.Learnt.Allow, " --allow-host "))
	case e.Life != nil && e.Life.Code != nil:
		b += fmt.Sprintf("%s, status %d", e.Life.End, *e.Life.Code)
	case e.Life != nil && e.Life.Reason != "":
		b += e.Life.Reason
	default:
		b += strings.TrimSpace(e.Engine + " " + e.Bot)
	}
	return gate.Printable(strings.TrimRight(b, " "), 4096)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
