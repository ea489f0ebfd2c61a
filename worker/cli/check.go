package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
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
	var wish selfcheck.Wish
	var mutate, junit string
	var asJSON bool
	rest, err := c.parse("check", args, func(set *flag.FlagSet) {
		set.StringVar(&mutate, "mutate", "", "take protections away from the check's own boxes: `LIST` of names, comma separated")
		chooseVar(set, &wish.Profile, "profile", "seed", []string{"seed", "full"}, "the `PROFILE`: seed (29 checks) or full")
		set.BoolVar(&asJSON, "json", false, "print the report as JSON")
		set.StringVar(&junit, "junit", "", "also write the results to `FILE`, as JUnit XML")
	})
	if err == nil {
		err = noWords(rest)
	}
	if err != nil {
		return 0, err
	}
	var file *os.File
	if junit != "" { // now, as the caller: root is given up below
		if file, err = os.Create(junit); err != nil {
			return 0, reason.New(reason.Usage, "write the results: %w", err)
		}
		defer file.Close()
	}
	wish.Mutations = list(mutate)
	if onTerminal(c.stderr) {
		wish.Progress = func(done, all int) { fmt.Fprintf(c.stderr, "\r%d of %d checks", done, all) }
	}
	began := time.Now()
	checks, found, err := c.check(wish)
	if wish.Progress != nil {
		fmt.Fprint(c.stderr, "\r\x1b[K")
	}
	if err != nil {
		return 0, err
	}
	r := report.New(found, nil, kernelRelease()).WithChecks(checks, time.Now())
	if file != nil {
		if err := errors.Join(writeJUnit(file, r, checks.At, time.Since(began)), file.Close()); err != nil {
			return 0, reason.New(reason.System, "write the results: %w", err)
		}
	}
	if asJSON {
		json.NewEncoder(c.stdout).Encode(r)
	} else {
		printChecks(c.stdout, paint(onTerminal(c.stdout) && os.Getenv("NO_COLOR") == ""), checks)
	}
	if len(checks.Failed()) > 0 {
		return 1, nil
	}
	return 0, nil
}

// check runs the self-check in boxes of its own, made as a turn's are.
func (c *call) check(wish selfcheck.Wish) (report.Checks, box.Finding, error) {
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
	wish.Stop = stop.Done()
	checks, err := selfcheck.Run(r, probe, wish)
	return checks, found, err
}
