package cli

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/engine"
	"github.com/openmausbot/botbox/worker/internal/lease"
	"github.com/openmausbot/botbox/worker/internal/secret"
	"github.com/openmausbot/botbox/worker/internal/spec"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// runFlags are the flags of run (DESIGN §6).
type runFlags struct {
	spec       spec.Spec
	specFile   string
	rw, ro     words
	env        words
	allow      words
	hosts      words
	logins     bool
	tty        string
	tmpSize    string
	memory     string
	standalone bool
	dryRun     bool
	json       bool
	stay       bool
	control    bool
}

// words is a flag that can be given again and again.
type words []string

func (w *words) String() string     { return strings.Join(*w, ",") }
func (w *words) Set(s string) error { *w = append(*w, s); return nil }

func (f *runFlags) define(set *flag.FlagSet) {
	s := &f.spec
	set.StringVar(&s.Bot, "bot", "", "the `BOT` that the box belongs to")
	set.StringVar(&s.Conversation, "conversation", "", "the `CONVERSATION` that it belongs to")
	chooseVar(set, &s.Engine, "engine", "auto", engines("auto"), "the `ENGINE`: auto, claude, codex, gemini, opencode, grok or none")
	set.StringVar(&s.Cwd, "cwd", "", "the work `FOLDER`, read and write (default: this one)")
	set.Var(&f.rw, "rw", "let a `PATH` in, read and write; can be given again")
	set.Var(&f.ro, "ro", "let a `PATH` in, read-only; can be given again")
	set.Var(&f.env, "env", "pass a variable that the allow-list does not have, as `NAME[=VALUE]`; can be given again")
	chooseVar(set, &s.Home.Mode, "home", "private", []string{"private", "server"}, "the `KIND`: private (empty, with the engine's own sign-in) or server (your HOME)")
	chooseVar(set, &s.Net.Mode, "net", "gated", []string{"gated", "none"}, "the `NETWORK`: gated (through the two gates) or none")
	set.Var(&f.allow, "allow-host", "let the egress gate reach `PATTERN[:PORT]`, and nothing else; can be given again")
	set.Var(&f.hosts, "broker-host", "keep the key in variable NAME outside, and put it into requests to HOST: `NAME=HOST`; the broker ends the TLS to that host; can be given again")
	set.BoolVar(&f.logins, "broker-login", false, "keep the engine's own sign-in (Claude Code's, Codex's) outside: the broker renews it and puts it into requests")
	set.BoolVar(&s.Net.Egress.Learn, "learn", false, "hold no list of hosts or ports, and tell at the end which --allow-host would have sufficed; implies --standalone")
	set.IntVar(&s.Limits.Pids, "pids", 0, "how many processes and threads (`N`) the box may have (default 4096)")
	set.StringVar(&f.tmpSize, "tmp-size", "", "the `SIZE` of /tmp, such as 512M (default 1G)")
	set.StringVar(&f.memory, "memory", "", "how much memory (`SIZE`) the box may use, such as 512M; needs a cgroup of its own")
	set.Float64Var(&s.Limits.CPU, "cpu", 0, "how many processors (`N`) it may use, such as 1.5; needs a cgroup of its own")
	chooseVar(set, &f.tty, "tty", "auto", []string{"auto", "yes", "no"}, "`WHEN`: auto, yes or no; whether the command keeps this terminal")
	set.StringVar(&f.specFile, "spec", "", "read the turn's spec from `FILE` (- is stdin) instead of flags")
	set.BoolVar(&f.standalone, "standalone", false, "do not ask a worker: keep the gates in this process")
	set.BoolVar(&f.dryRun, "dry-run", false, "print how the box would be built, and build none")
	set.BoolVar(&f.json, "json", false, "print the box's answer as JSON on stderr")
	set.BoolVar(&f.control, "control", false, "take the command, its folder and its environment from botbox-supervisor, on descriptor 3")
}

// runVerb boxes a command. Through a running worker this process becomes the
// box; without one it keeps the gates itself.
func runVerb(c *call, args []string) (int, error) {
	var f runFlags
	command, err := c.parse("run", args, f.define)
	if err != nil {
		return 0, err
	}
	if f.control {
		return 0, c.containersBox(args)
	}
	if len(command) == 0 && f.specFile == "" {
		usage(c.stderr)
		return 0, reason.New(reason.Usage, "no command")
	}
	a, programs, err := c.enter("boxentry")
	if err != nil {
		return 0, err
	}
	s, err := f.read(command)
	if err != nil {
		return 0, err
	}
	return c.boxed(programs[0], a, s, f)
}

// boxed boxes what a spec describes, and returns when it has ended.
func (c *call) boxed(entry box.Program, a account, s spec.Spec, f runFlags) (int, error) {
	c.announce(a)
	if err := c.switchedOff(); err != nil {
		return 0, err
	}
	if s.Browser.DebugPipe {
		if err := checkPipe(); err != nil {
			return 0, err
		}
	}
	// With --learn the end has something to tell, and a leased box leaves nobody
	// to tell it; a spec's learning box is told of among the worker's events.
	if !f.standalone && !f.dryRun && !f.spec.Net.Egress.Learn {
		code, err := c.leased(s, f)
		if !errors.Is(err, lease.ErrNoWorker) {
			return code, err
		}
	}
	b, err := json.Marshal(s) // one decoder judges, whoever asks
	if err != nil {
		return 0, reason.New(reason.Internal, "write the spec: %w", err)
	}
	if s, err = spec.Decode(b); err != nil {
		return 0, err
	}
	if err := closeToOthers(); err != nil { // from here on keys are unpacked
		return 0, err
	}
	return c.standalone(entry, a, s, f)
}

func (c *call) switchedOff() error {
	if c.settings.BotBox == "0" {
		return reason.New(reason.SwitchedOff, "there is no box: OMB_BOT_BOX is 0, and a command is never run without one")
	}
	return nil
}

// introduce says what the caller has to know of its box: all of it as JSON, or what
// is weaker or other than may be expected.
func (c *call) introduce(a turn.Answer, asJSON bool) {
	if asJSON {
		json.NewEncoder(c.stderr).Encode(a)
		return
	}
	for _, text := range a.Warnings {
		fmt.Fprintf(c.stderr, "botbox: warning: %s\n", text)
	}
}

// leased becomes the box, and returns only when there is no worker, or no box;
// or it stays the box's parent, and returns at its end.
func (c *call) leased(s spec.Spec, f runFlags) (int, error) {
	l, err := lease.Ask(c.settings.runDir(), s)
	if err != nil {
		return 0, err
	}
	c.take(l, f.json)
	if f.stay || startedFromOutside() {
		return c.stay(l, s)
	}
	return 0, l.Become(s.TTY)
}

// take says what has to be known of a leased box, before it stands.
func (c *call) take(l *lease.Lease, asJSON bool) {
	if l.Answer.Layers["user"] == "per-bot" {
		openPipes()
	}
	c.introduce(l.Answer, asJSON)
}

// read makes the spec, out of a file or out of the flags.
func (f *runFlags) read(command []string) (spec.Spec, error) {
	if f.specFile != "" {
		if len(command) > 0 {
			return spec.Spec{}, reason.New(reason.Usage, "--spec names the command; nothing may follow")
		}
		return readSpecFile(f.specFile)
	}
	return f.fromFlags(command)
}

func readSpecFile(name string) (spec.Spec, error) {
	var from io.Reader = os.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return spec.Spec{}, reason.New(reason.BadSpec, "read the spec: %w", err)
		}
		defer file.Close()
		from = file
	}
	b, err := io.ReadAll(io.LimitReader(from, spec.MaxBytes+1))
	if err != nil {
		return spec.Spec{}, reason.New(reason.BadSpec, "read the spec: %w", err)
	}
	return spec.Decode(b)
}

func (f *runFlags) fromFlags(command []string) (spec.Spec, error) {
	s := f.spec
	s.V, s.Argv = 1, command
	if s.Engine == "auto" {
		s.Engine = engine.Of(command, func(word string) string { return box.Leads(word, os.Getenv("PATH")) })
	}
	var err error
	if s.Limits.TmpMB, err = megabytes("--tmp-size", f.tmpSize); err != nil {
		return s, err
	}
	if s.Limits.MemoryMB, err = megabytes("--memory", f.memory); err != nil {
		return s, err
	}
	if s.TTY, err = wantsTerminal(f.tty); err != nil {
		return s, err
	}
	if s.Cwd, err = workFolder(s.Cwd); err != nil {
		return s, err
	}
	if s.Paths.RW, err = absolute(f.rw); err != nil {
		return s, err
	}
	if s.Paths.RO, err = absolute(f.ro); err != nil {
		return s, err
	}
	if f.allow != nil {
		allow := []string(f.allow)
		s.Net.Egress.Allow = &allow
	}
	s.Env, s.EnvExtraNames = environment(os.Environ(), f.env)
	if f.logins {
		s.Broker.Logins = []string{s.Engine}
	}
	s.Broker.Hosts, err = declaredHosts(f.hosts)
	return s, err
}

// declaredHosts reads NAME=HOST words; one variable can have several hosts.
func declaredHosts(given words) ([]spec.Hosts, error) {
	var all []spec.Hosts
	for _, word := range given {
		name, host, ok := strings.Cut(word, "=")
		if !ok || name == "" || host == "" {
			return nil, reason.New(reason.Usage, "--broker-host takes NAME=HOST")
		}
		i := slices.IndexFunc(all, func(h spec.Hosts) bool { return h.Env == name })
		if i < 0 {
			all, i = append(all, spec.Hosts{Env: name}), len(all)
		}
		all[i].Hosts = append(all[i].Hosts, host)
	}
	return all, nil
}

// environment passes all of this process's variables on: the worker decides,
// by name, and answers which it dropped. --env declares further names.
func environment(own []string, declared words) (map[string]spec.Value, []string) {
	env := map[string]spec.Value{}
	for _, entry := range own {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
			env[name] = spec.Value{Text: secret.New(value)}
		}
	}
	var extra []string
	for _, entry := range declared {
		name, value, given := strings.Cut(entry, "=")
		extra = append(extra, name)
		if given {
			env[name] = spec.Value{Text: secret.New(value)}
		}
	}
	return env, extra
}

// workFolder gives the folder to work in as the box will see it: absolute,
// without a symbolic link.
func workFolder(asked string) (string, error) {
	if asked == "" {
		asked = "."
	}
	dir, err := filepath.Abs(asked)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", reason.New(reason.WorkFolder, "the work folder cannot be used: %w", err)
	}
	return dir, box.CheckWorkFolder(dir)
}

func absolute(paths []string) ([]string, error) {
	all := make([]string, len(paths))
	for i, p := range paths {
		abs, err := filepath.Abs(p)
		if err != nil {
			return nil, reason.New(reason.PathRefused, "%s: %w", p, err)
		}
		all[i] = abs
	}
	return all, nil
}

// megabytes reads a size such as 512M or 2G, binary.
func megabytes(option, text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	factor := map[byte]int{'M': 1, 'm': 1, 'G': 1024, 'g': 1024}[text[len(text)-1]]
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 20)
	if factor == 0 || err != nil || n == 0 {
		return 0, reason.New(reason.Usage, "%s is not a size such as 512M or 2G", option)
	}
	return int(n) * factor, nil
}

func wantsTerminal(asked string) (bool, error) {
	switch asked {
	case "yes":
		return true, nil
	case "no":
		return false, nil
	case "auto":
		_, err := unix.IoctlGetTermios(0, unix.TCGETS)
		return err == nil, nil
	}
	return false, reason.New(reason.Usage, "--tty is auto, yes or no")
}

// printPlan shows how a box would be built, an option a line. Values of the
// environment are left out: some may be keys.
func printPlan(w io.Writer, k *box.Kit) {
	fmt.Fprint(w, k.Bwrap)
	for i, word := range k.Options {
		switch {
		case i >= 2 && k.Options[i-2] == "--setenv":
			fmt.Fprint(w, " …")
		case strings.HasPrefix(word, "--"):
			fmt.Fprintf(w, "\n  %s", word)
		default:
			fmt.Fprintf(w, " %s", word)
		}
	}
	fmt.Fprintf(w, "\n  %s\n", strings.Join(k.Argv[3:], " "))
}
