package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
)

// verb is one row of the command line.
type verb struct {
	name string
	args string // what follows, as usage shows it
	help string
	run  func(*call, []string) (int, error)
}

// call is one invocation.
type call struct {
	settings Settings
	stdout   io.Writer
	stderr   io.Writer
	secrets  secretReader // of our own; a runner's are for specs
	// described is given the flags of a verb that is only asked for them.
	described func(*flag.FlagSet)
}

// verbs is filled by a function because help prints the table itself.
func verbs() []verb {
	return []verb{
		{"run", "[flags] -- CMD ARG…", "run a command in a box (the verb can be left out)", runVerb},
		{"browser", "[flags] -- CHROME ARG…", "run a browser in a box of its own, or write a launcher that does", browserVerb},
		{"plain", "--control", "be the supervisor's command without a box; for botbox-supervisor", plainVerb},
		{"serve", "", "be the worker: hand out boxes, serve their gates", serveVerb},
		{"check", "[--profile seed|full] [--mutate LIST] [--json] [--junit FILE]", "try to get out of a box, and count what held", checkVerb},
		{"detect", "[--json]", "tell whether this machine can box, and if not, why", detectVerb},
		{"doctor", "[--json]", "try each layer of a box by itself, and say how to put right what is missing", doctorVerb},
		{"ps", "[--json]", "list the worker's boxes", psVerb},
		{"kill", "BOX", "end a box whole", killVerb},
		{"bot", "{adopt | release} BOT [FOLDER] [--json]", "give a bot's workspace to its own Linux user, or take it back (OMB_BOT_USERS=1)", botVerb},
		{"logs", "[-f] [--box ID] [--broker] [--json]", "show what the gates decided, and the boxes' starts and ends", logsVerb},
		{"mcp", "test URL [--header NAME=ref:SECRET]… [--json]", "try an MCP server the way a bot reaches it, and list its tools", mcpVerb},
		{"report", "[--json] [--signed | --public-key | --verify FILE] [--nonce N] [--key KEY]", "show the worker's report, sign it, or verify one", reportVerb},
		{"audit", "[--verify] [--json]", "print the broker's audit log, or check that nobody changed it", auditVerb},
		{"why", "{host H[:P] [--box ID | --allow-host PATTERN] | path P | env NAME [--engine E] | syscall NAME | check ID | reason CODE}", "explain a decision from the tables that make it", whyVerb},
		{"completion", "{bash | zsh | fish}", "print what lets a shell complete this command line", completionVerb},
		{"man", "[VERB]", "print a manual page, of botbox or of a verb", manVerb},
		{"version", "", "print the build", versionVerb},
	}
}

// Main runs one command line and gives its exit status.
func Main(args []string, load func() (Settings, error)) int {
	c := &call{stdout: os.Stdout, stderr: os.Stderr}
	status, err := c.dispatch(args, load)
	if err != nil {
		reason.Print(c.stderr, "botbox", err)
		return reason.Exit(err)
	}
	return status
}

func (c *call) dispatch(args []string, load func() (Settings, error)) (int, error) {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
		usage(c.stdout)
		return 0, nil
	}
	if len(args) == 1 && args[0] == "--version" {
		args = []string{"version"}
	}
	if len(args) == 0 {
		usage(c.stderr)
		return 0, reason.New(reason.Usage, "no command")
	}
	v, rest, err := chooseVerb(args)
	if err != nil {
		return 0, err
	}
	if c.settings, err = load(); err != nil {
		return 0, err
	}
	return v.run(c, rest)
}

// chooseVerb finds the verb; words that start with a dash belong to run.
func chooseVerb(args []string) (verb, []string, error) {
	all := verbs()
	if strings.HasPrefix(args[0], "-") {
		return all[0], args, nil
	}
	for _, v := range all {
		if v.name == args[0] {
			return v, args[1:], nil
		}
	}
	return verb{}, nil, reason.New(reason.Usage, "there is no verb %q", args[0]).
		WithHint("to box a command: botbox run -- %s", strings.Join(args, " "))
}

func usage(w io.Writer) {
	fmt.Fprint(w, "botbox runs a command in a box with no way out, no secrets and nobody else's files.\n\nusage:\n")
	for _, v := range verbs() {
		fmt.Fprintf(w, "  botbox %-10s %-34s %s\n", v.name, v.args, v.help)
	}
	fmt.Fprint(w, "\n`botbox run --help` lists its flags. Exit status: the command's own; 125 no box,\n100 wrong use or configuration, 111 the system refused.\n")
}

// parse reads a verb's flags. Nothing after the first word that is no flag, or
// after --, is looked at.
func (c *call) parse(name string, args []string, define func(*flag.FlagSet)) ([]string, error) {
	set := flag.NewFlagSet("botbox "+name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	define(set)
	if c.described != nil {
		c.described(set)
		return nil, errDescribed
	}
	err := set.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		flagUsage(c.stdout, name, set)
		os.Exit(0)
	}
	if err != nil {
		flagUsage(c.stderr, name, set)
		return nil, reason.New(reason.Usage, "%w", err)
	}
	return set.Args(), nil
}

func flagUsage(w io.Writer, name string, set *flag.FlagSet) {
	for _, v := range verbs() {
		if v.name == name {
			fmt.Fprintf(w, "usage: botbox %s %s\n", v.name, v.args)
		}
	}
	set.SetOutput(w)
	set.PrintDefaults()
	set.SetOutput(io.Discard)
}

// noWords refuses arguments that a verb does not take.
func noWords(words []string) error {
	if len(words) > 0 {
		return reason.New(reason.Usage, "unexpected word %q", words[0])
	}
	return nil
}

func versionVerb(c *call, args []string) (int, error) {
	rest, err := c.parse("version", args, func(*flag.FlagSet) {})
	if err == nil {
		err = noWords(rest)
	}
	if err != nil {
		return 0, err
	}
	fmt.Fprintln(c.stdout, "botbox", wire.Build)
	return 0, nil
}
