package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/report"
	"github.com/openmausbot/botbox/worker/internal/selfcheck"
)

// checkVerb tries to get out of a box and counts what held. It exits 0 only
// when every check passed.
func checkVerb(c *call, args []string) (int, error) {
	var mutate, profile string
	var asJSON bool
	rest, err := c.parse("check", args, func(set *flag.FlagSet) {
		set.StringVar(&mutate, "mutate", "", "take protections away from the check's own boxes: `LIST` of names, comma separated")
		chooseVar(set, &profile, "profile", "seed", []string{"seed", "full"}, "the `PROFILE`: seed (29 checks) or full")
		set.BoolVar(&asJSON, "json", false, "print the report as JSON")
	})
	if err == nil {
		err = noWords(rest)
	}
	if err != nil {
		return 0, err
	}
	checks, found, err := c.check(profile, list(mutate))
	if err != nil {
		return 0, err
	}
	r := report.New(found, nil, kernelRelease()).WithChecks(checks, time.Now())
	if asJSON {
		json.NewEncoder(c.stdout).Encode(r)
	} else {
		printChecks(c, checks)
	}
	if len(checks.Failed()) > 0 {
		return 1, nil
	}
	return 0, nil
}

// check runs the self-check in boxes of its own, made as a turn's are.
func (c *call) check(profile string, mutations []string) (report.Checks, box.Finding, error) {
	var found box.Finding
	if c.settings.BotBox == "0" {
		return report.Checks{}, found, reason.New(reason.SwitchedOff, "there is no box to check: OMB_BOT_BOX is 0")
	}
	a, programs, err := c.enter("boxentry", "boxprobe")
	if err == nil {
		err = closeToOthers()
	}
	if err != nil {
		return report.Checks{}, found, err
	}
	entry, probe := programs[0], programs[1]
	log := slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	r, err := c.newRunner(entry, a, broker.Options{BootKey: newBootKey()}, log)
	if err != nil {
		return report.Checks{}, found, err
	}
	defer r.Broker.Close()
	r.Count = func(string) {}
	if found = r.Spawner.Detect(os.Getenv("PATH"), entry); found.Err != nil {
		return report.Checks{}, found, found.Err
	}
	// What a signal would leave behind is ours: files, a process, listeners.
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	checks, err := selfcheck.Run(r, probe, selfcheck.Wish{Profile: profile, Mutations: mutations, Stop: stop.Done()})
	return checks, found, err
}

func printChecks(c *call, checks report.Checks) {
	for _, r := range checks.Results {
		fmt.Fprintf(c.stdout, "%-4s %-18s %-12s %s\n", r.ID, r.Layer, r.Verdict, r.Why)
	}
	if len(checks.Declared) > 0 {
		fmt.Fprintf(c.stdout, "declared to fail: %s\n", strings.Join(checks.Declared, " "))
	}
	fmt.Fprintf(c.stdout, "%d/%d checks passed\n", checks.Passed(), len(checks.Results))
}
