package cli

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/boxenv"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/seccomp"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// whyTopics print the rows of the tables that decide: nothing is explained
// that does not also happen.
var whyTopics = map[string]func(*call, string) error{
	"path":    (*call).whyPath,
	"check":   (*call).whyCheck,
	"syscall": (*call).whySyscall,
	"reason":  (*call).whyReason,
}

func whyVerb(c *call, args []string) (int, error) {
	var engine string
	var q hostQuestion
	define := func(set *flag.FlagSet) {
		chooseVar(set, &engine, "engine", engine, engines(), "with env: in a box of `ENGINE`")
		q.define(set)
	}
	words, err := c.parse("why", args, define)
	if err == nil && len(words) > 2 { // flags may stand behind the words, too
		var rest []string
		rest, err = c.parse("why", words[2:], define)
		words = append(words[:2], rest...)
	}
	switch {
	case err != nil:
		return 0, err
	case len(words) == 2 && words[0] == "env" && q.none():
		return 0, c.whyEnv(words[1], engine)
	case len(words) == 2 && words[0] == "host" && engine == "":
		return 0, c.whyHost(words[1], q)
	case len(words) != 2 || engine != "" || !q.none() || whyTopics[words[0]] == nil:
		return 0, reason.New(reason.Usage, "why takes a topic and a word: host H[:P] [--box ID | --allow-host PATTERN], path P, env NAME [--engine E], syscall NAME, check ID or reason CODE")
	}
	return 0, whyTopics[words[0]](c, words[1])
}

func (c *call) whyEnv(name, engine string) error {
	if engine != "" && !slices.Contains(spec.Engines, engine) && !strings.HasPrefix(engine, "acp:") {
		return reason.New(reason.Usage, "%q is no engine: %s, acp:NAME", engine, strings.Join(spec.Engines, ", "))
	}
	verdict, why := boxenv.Decide(name, engine, nil)
	fmt.Fprintf(c.stdout, "%s: %s\n", verdict, why)
	for _, g := range boxenv.AllGiven() {
		if g.Name == name {
			value := boxenv.Fixed(int(c.settings.Port))[name]
			fmt.Fprintf(c.stdout, "given to %s: %s=%s (%s)\n", givenTo(g), name, value, g.Reason)
		}
	}
	for _, row := range boxenv.All() {
		if row.Name == name && row.Engine != "" && engine == "" {
			fmt.Fprintf(c.stdout, "%s in a box of %s: %s\n", row.Verdict, row.Engine, row.Reason)
		}
	}
	return nil
}

func givenTo(g boxenv.Given) string {
	if g.Gate {
		return "every engine's box with gates"
	}
	return "every box"
}

func (c *call) whySyscall(name string) error {
	rows := seccomp.Lookup(name)
	if len(rows) == 0 {
		fmt.Fprintf(c.stdout, "allowed: no row of the filter names %s\n", name)
		return nil
	}
	for _, row := range rows {
		when := ""
		if row.When.Test != seccomp.Always {
			when = " with some arguments"
		}
		fmt.Fprintf(c.stdout, "refused%s (%s): %s\n", when, unix.ErrnoName(row.Errno), row.Reason)
	}
	return nil
}

func (c *call) whyReason(code string) error {
	row, ok := reason.Lookup(reason.Code(code))
	if !ok {
		return reason.New(reason.Usage, "%q is no reason code of ours", code)
	}
	fmt.Fprintf(c.stdout, "%s.\nhint: %s\nexit status: %d\n", capitalised(row.Means), row.Hint, row.Exit)
	return nil
}

func capitalised(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
