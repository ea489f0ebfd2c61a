package selfcheck

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/report"
	"github.com/openmausbot/botbox/worker/internal/secret"
	"github.com/openmausbot/botbox/worker/internal/spec"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// The profiles and verdicts, in boxprobe's words.
const (
	seed = "seed"
	full = "full"

	pass         = "pass"
	fail         = "fail"
	inconclusive = "inconclusive"
)

// Wish is what a run of the self-check has to do.
type Wish struct {
	Profile   string          // seed or full
	Mutations []string        // protections to take away, by name
	Stop      <-chan struct{} // closed: end early, with an error; may be nil
	// Progress hears how many checks the probe has reported, of how many. It
	// is called from one goroutine, which has ended when Run returns; may be nil.
	Progress func(done, all int)
}

// within bounds the whole visit of the probe. It takes about a second.
const within = 30 * time.Second

// What the probe may have, so that it can reach the limits in a moment. Every
// limit is set in the same way, whatever it is.
const (
	maxPids  = 96
	maxFiles = 512
	tmpMB    = 16
	fileMB   = 12
)

// probePath is where boxprobe stands in the self-check's box.
const probePath = "/run/botbox/boxprobe"

// Run does one self-check in a box of its own, beside any other. The box is in
// none of r's lists and counts. With an error there are no results if the wish
// or boxprobe's table could not be read; otherwise every check is inconclusive,
// for a check that could not be carried out has failed.
func Run(r *turn.Runner, probe box.Program, w Wish) (report.Checks, error) {
	checks := report.Checks{Profile: w.Profile, At: time.Now()}
	if w.Profile != seed && w.Profile != full {
		return checks, reason.New(reason.Usage, "the profile is seed or full, not %q", w.Profile)
	}
	under, err := chosen(w.Mutations)
	if err != nil {
		return checks, err
	}
	rows, err := readTable(r.Spawner, probe, w.Profile)
	if err != nil {
		return checks, err
	}
	checks.Results = judge(rows, nil, "the probe could not be sent into a box", nil)
	// A thread of its own, for its session has a key in it that no turn's may have.
	spawner := box.NewSpawner()
	defer spawner.Close()
	o := &outside{spawner: spawner}
	defer func() {
		if err := o.remove(); err != nil {
			r.Log.Error("the self-check could not tidy up", slog.String("cause", err.Error()))
		}
	}()
	if err := o.layOut(probe); err != nil {
		return checks, err
	}
	o.Nameless = r.Machine.Nameless
	checks.Declared = o.declared(rows, under)
	v := visit{outside: o, rows: rows, wish: w, under: under, probe: probe}
	results, err := v.run(r)
	if err == nil {
		checks.Results = results
	}
	return checks, err
}

// visit is the probe's way into a box and back.
type visit struct {
	*outside
	rows  []row
	wish  Wish
	under []mutation
	probe box.Program

	boxPorts  box.Ports
	delivered error // nil: the redirect was answered in the box
}

// run sends the probe into a box and judges what it reports.
func (v *visit) run(r *turn.Runner) ([]report.Result, error) {
	ports, err := v.ports(v.under)
	if err != nil {
		return nil, err
	}
	file, err := v.write(ports)
	if err != nil {
		return nil, err
	}
	mine := v.runner(r, ports)
	v.lookFor, v.boxPorts = r.Path, ports
	leaks, err := v.leaks()
	if err != nil {
		return nil, err
	}
	t, answer, err := mine.Prepare(v.spec(file), turn.Way{First: box.ChildFD + len(leaks), Change: v.change, Front: v.front})
	if err != nil {
		closeAll(leaks)
		return nil, err
	}
	t.Kit.Below = leaks
	e := evidence{outside: v.outside, dropped: answer.DroppedEnv, grants: answer.Grants, visit: v, runner: mine}
	dead := e.dead(before)
	if err := v.exchange(); err != nil {
		t.Abandon()
		return nil, reason.New(reason.System, "lay out the self-check: %w", err)
	}
	out, ended, err := v.attend(mine, t, &e.seen)
	if err != nil {
		return nil, err
	}
	if err := checkBuild(out.build); err != nil {
		return nil, err
	}
	e.results, e.delivered = out.lines, v.delivered
	if ended == "" { // otherwise nothing counts, and there may be no lines
		e.judged(v.rows)
	}
	for id, why := range e.dead(after) {
		dead[id] = why
	}
	return judge(v.rows, e.results, ended, dead), nil
}

// runner makes boxes as the worker's own does, of the laid-out machine.
func (o *outside) runner(r *turn.Runner, ports box.Ports) *turn.Runner {
	machine := box.LookAt(r.Machine.User, o.at("home"), o.DataDir)
	machine.Nameless = r.Machine.Nameless
	return &turn.Runner{
		Spawner: o.spawner, Path: r.Path, Entry: r.Entry, Broker: o.broker, Egress: o.dialer(r.Egress), Secrets: r.Secrets,
		Machine: machine,
		Ports:   ports,
		Harness: "tcp:" + o.server.address.String(),
		Log:     slog.New(slog.DiscardHandler),
		Count:   func(string) {},
	}
}

// spec asks for the box of one bot's turn.
func (v *visit) spec(file string) spec.Spec {
	s := spec.Spec{
		V: 1, ID: v.box, Kind: "turn", Engine: "none", Bot: "own", Conversation: "own",
		Argv: []string{probePath, "--profile", v.wish.Profile, file},
		Cwd:  v.WorkDir, Home: spec.Home{Mode: "private"}, Net: spec.Net{Mode: "gated", Relay: true},
		Paths: spec.Paths{
			RW:        []string{v.BotDir},
			RO:        []string{v.at("code"), v.at("data/hook-tokens/own"), v.Swapped},
			ArgvFiles: []string{file},
		},
		Limits: spec.Limits{Pids: maxPids, Nofile: maxFiles, TmpMB: tmpMB, FileMB: fileMB},
		Broker: spec.Broker{TTLS: 2 * int(within/time.Second)},
		Env: map[string]spec.Value{
			keyName:  {Text: secret.New(v.key)},
			baseName: {Text: secret.New("http://" + v.provider.address.String())},
		},
	}
	for _, name := range append(v.names(), v.EnvListed) {
		s.Env[name] = spec.Value{Text: secret.New(v.Marker)}
	}
	return s
}

// change lets boxprobe in, and takes away what the mutations say.
func (v *visit) change(p *box.Plan) {
	v.ours, _ = tokenOf(p.Env[baseName]) // if there is none, B3 says so
	// After the plan was made, so that Landlock does not know of it, and below
	// none of the folders that it knows.
	insert(p, box.Mount{Kind: box.Bind, Source: v.at("walled"), Dest: v.Walled, Reason: "the self-check's writable mount"})
	insert(p, v.probeMount())
	for _, m := range v.under {
		m.change(v.outside, p)
	}
	p.Lacks.Weakened = v.weak.filter(p.Seccomp)
}

func (v *visit) probeMount() box.Mount {
	return box.Mount{Kind: box.ROBind, Source: v.probe.Name(), Program: &v.probe, Dest: probePath, Reason: "the self-check's probe"}
}

// attend runs the box to its end. ended is empty when the probe lived to its
// last line, and says otherwise why not.
func (v *visit) attend(r *turn.Runner, t *turn.Turn, seen *sighting) (out output, ended string, err error) {
	said, child, err := v.start(r, t)
	if err != nil {
		t.Abandon()
		return out, "", err
	}
	stopped, delivered, looked := v.watch(t), v.deliver(t), make(chan sighting, 1)
	go func() {
		select {
		case <-t.Ready():
			looked <- sight(child.Pid(), t.Pid())
		case <-t.Ended():
			looked <- sighting{err: errors.New("it never ran")}
		}
	}()
	code, err := t.Attend()
	if err != nil {
		child.Kill()
	}
	child.Wait()
	got, cut := <-said, <-stopped
	v.delivered, *seen = <-delivered, <-looked
	switch {
	case cut != nil:
		return out, "", cut
	case err != nil:
		return out, "", err
	case got.err != nil:
		return out, got.err.Error(), nil
	case got.build == "":
		return out, "the probe did not live to its last line", nil
	case code != 0:
		return out, "the probe ended with an error of its own", nil
	}
	return got.output, "", nil
}

// heard is what was read of the probe.
type heard struct {
	output
	err error
}

// start starts the box, and reads what the probe says until it ends.
func (v *visit) start(r *turn.Runner, t *turn.Turn) (<-chan heard, *box.Child, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, reason.New(reason.System, "start the probe: %w", err)
	}
	defer null.Close()
	from, to, err := os.Pipe()
	if err != nil {
		return nil, nil, reason.New(reason.System, "start the probe: %w", err)
	}
	child, err := v.spawn(r, t.Kit, to, null)
	to.Close()
	if err != nil {
		from.Close()
		return nil, nil, err
	}
	said := make(chan heard, 1)
	go func() {
		out, err := readOutput(io.TeeReader(from, &tally{tell: v.wish.Progress, all: len(v.rows)}), v.rows)
		from.Close() // a probe that goes on writing must not hang
		said <- heard{out, err}
	}()
	return said, child, nil
}

// spawn starts the box as one that a shell asked for, from a terminal, for it
// must have none of its own then either.
func (v *visit) spawn(r *turn.Runner, k *box.Kit, to, null *os.File) (*box.Child, error) {
	if v.terminal[1] == nil {
		return r.Spawner.Start(k, [3]*os.File{null, to, null}, true)
	}
	return r.Spawner.StartOn(k, [3]*os.File{v.terminal[1], to, null})
}

var errStopped = errors.New("the self-check was told to stop")

// watch ends the box when its time is over, or when it is told to. It tells,
// once the box has ended, whether it was told.
func (v *visit) watch(t *turn.Turn) <-chan error {
	told := make(chan error, 1)
	go func() {
		timer := time.NewTimer(within)
		defer timer.Stop()
		select {
		case <-t.Ended():
			told <- nil
		case <-timer.C:
			t.Kill()
			told <- nil
		case <-v.wish.Stop:
			t.Kill()
			told <- reason.New(reason.System, "%w", errStopped)
		}
	}()
	return told
}

// judge makes the results, in the order of the probe's table. A pass is one
// only if it was reported by a probe that came back and its controls held.
func judge(rows []row, lines map[string]report.Result, ended string, dead map[string]string) []report.Result {
	results := make([]report.Result, len(rows))
	for i, r := range rows {
		line, ok := lines[r.ID]
		switch {
		case ended != "":
			line.Verdict, line.Why = inconclusive, ended
		case !ok:
			line.Verdict, line.Why = inconclusive, "the probe did not report it"
		case line.Verdict == pass && dead[r.ID] != "":
			line.Verdict, line.Why = inconclusive, dead[r.ID]
		}
		line.ID, line.Layer = r.ID, r.Layer
		results[i] = line
	}
	return results
}

// leaks opens two files for the box to inherit, at a browser's pipe's numbers,
// which boxentry leaves open where the plan has such a pipe. What nobody leaves
// open proves nothing about the closing: our own caller rarely does.
func (v *visit) leaks() ([]*os.File, error) {
	var files []*os.File
	for range 2 {
		f, err := os.Open(v.Database)
		if err != nil {
			closeAll(files)
			return nil, reason.New(reason.System, "lay out the self-check: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
