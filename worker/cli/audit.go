package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/api"
	"github.com/openmausbot/botbox/worker/internal/audit"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/report"
)

// audited is an event as the audit log keeps it: all but the stack of a fault.
func audited(e broker.Event) audit.Entry {
	return audit.Entry{
		Time: e.Time, Kind: string(e.Kind), Box: e.Box, Owner: e.Owner, Bot: e.Bot, Conversation: e.Conversation,
		Grant: e.Grant, Method: e.Method, Route: e.Route, Status: e.Status, Code: e.Code, Up: e.Up, Down: e.Down,
		MicroS: e.Took.Microseconds(), UpstreamUS: e.Upstream.Microseconds(), Redacted: e.Redacted, Tokens: e.Tokens,
	}
}

func auditVerb(c *call, args []string) (int, error) {
	var verify, asJSON bool
	rest, err := c.parse("audit", args, func(set *flag.FlagSet) {
		set.BoolVar(&verify, "verify", false, "follow the chain from the oldest line to the newest")
		set.BoolVar(&asJSON, "json", false, "print JSON")
	})
	if err == nil {
		err = noWords(rest)
	}
	if err != nil {
		return 0, err
	}
	return c.audit(verify, asJSON)
}

func (c *call) audit(verify, asJSON bool) (int, error) {
	// The worker writes behind its requests: its report comes first, and the
	// line that it names is in the file soon after.
	anchor, err := c.newestLine()
	if err != nil {
		return 0, err
	}
	a, err := c.leaveRoot()
	if err != nil {
		return 0, err
	}
	dir := c.settings.stateDir(a.home)
	if _, err := os.Stat(filepath.Join(dir, audit.Name)); err != nil {
		return 0, reason.New(reason.NoAudit, "there is no audit log: %w", err)
	}
	if verify {
		return 0, c.verifyAudit(dir, anchor, asJSON)
	}
	return 0, c.printAudit(dir, asJSON)
}

// newestLine asks the worker, if there is one, for the line that must be there.
func (c *call) newestLine() (string, error) {
	var r report.Report
	_, err := os.Stat(filepath.Join(c.settings.runDir(), api.SocketName))
	if err != nil { // no worker: the files are all there is
		return "", nil
	}
	if err := c.ask("GET", "/api/cloud/box", nil, &r); err != nil && reason.Of(err).Code != reason.NoWorker {
		return "", err
	}
	return r.Broker.Audit.Head, nil
}

func (c *call) verifyAudit(dir, anchor string, asJSON bool) error {
	found, err := audit.VerifySoon(dir, anchor)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(c.stdout).Encode(found)
	}
	with := "no worker answers, so nobody tells whether the end is there"
	if anchor != "" {
		with = "up to the line that the worker names"
	}
	fmt.Fprintf(c.stdout, "the chain holds: %d lines, %d to %d, %s\nhead %s\n", found.Lines, found.First, found.Last, with, found.Head)
	if found.Lost > 0 {
		fmt.Fprintf(c.stdout, "%d lines were lost because the disk did not take them\n", found.Lost)
	}
	return nil
}

func (c *call) printAudit(dir string, asJSON bool) error {
	if asJSON {
		to := json.NewEncoder(c.stdout)
		var failed error
		err := audit.Read(dir, func(l audit.Line) {
			if failed == nil {
				failed = to.Encode(l)
			}
		})
		if failed != nil {
			return reason.New(reason.System, "print: %w", failed)
		}
		return err
	}
	w := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tKIND\tBOX\tGRANT\tMETHOD\tROUTE\tSTATUS\tCODE\tUP\tDOWN\tMS")
	err := audit.Read(dir, func(l audit.Line) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%d\t%d\t%.1f\n", l.Time.Format("2006-01-02T15:04:05.000Z"), l.Kind, l.Box,
			l.Grant, l.Method, l.Route, l.Status, l.Code, l.Up, l.Down, float64(l.MicroS)/1000)
	})
	if flushed := w.Flush(); err == nil && flushed != nil {
		err = reason.New(reason.System, "print: %w", flushed)
	}
	return err
}
