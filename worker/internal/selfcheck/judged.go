package selfcheck

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/report"
	"github.com/openmausbot/botbox/worker/internal/spec"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// A look says what only this side of a box can see. It is asked when the box
// has ended; where the probe reports the row too, only if that is a pass.
type look func(*evidence) report.Result

var judges = map[string]look{
	"F10": (*evidence).leftInside,
	"B15": (*evidence).endsWithItsEngine,
	"N18": (*evidence).nothingHeld,
	"F22": (*evidence).plantedLink,
	"F24": (*evidence).oddFiles,
	"F25": (*evidence).trapsFired,
	"F26": (*evidence).litter,
	"F30": (*evidence).homeUntouched,
	"P05": (*evidence).quietOutside,
	"P12": (*evidence).askerKilled,
	"P13": (*evidence).nobodyStays,
	"M03": (*evidence).bubblewrapItself,
	"M05": (*evidence).closedToItsUser,
	"M04": func(*evidence) report.Result { return workerItself("/proc/self/status", dumpable) },
}

// judged adds what the judges say to what the probe reported.
func (e *evidence) judged(rows []row) {
	if e.results == nil { // nothing came back, not even a beginning
		e.results = map[string]report.Result{}
	}
	for _, r := range rows {
		see, ok := judges[r.ID]
		if said := e.results[r.ID]; !ok || !r.Outside && said.Verdict != pass {
			continue
		}
		since := time.Now()
		result := see(e)
		result.ID, result.MS = r.ID, e.results[r.ID].MS+time.Since(since).Milliseconds()
		e.results[r.ID] = result
	}
}

func passed(format string, args ...any) report.Result {
	return report.Result{Verdict: pass, Why: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) report.Result {
	return report.Result{Verdict: fail, Why: fmt.Sprintf(format, args...)}
}

func unclear(format string, args ...any) report.Result {
	return report.Result{Verdict: inconclusive, Why: fmt.Sprintf(format, args...)}
}

// leftInside looks where the probe wrote, but in the machine's own folders.
func (e *evidence) leftInside() report.Result {
	for _, canary := range []string{e.TmpFile, e.VarTmpFile} {
		if _, err := os.Lstat(filepath.Join(filepath.Dir(canary), "boxprobe.f10")); err == nil {
			return failed("a file of the box's is in the machine's own %s", filepath.Dir(filepath.Dir(canary)))
		}
	}
	return passed("what was left is in no folder outside")
}

func (e *evidence) homeUntouched() report.Result {
	if _, err := os.Lstat(e.at("home/boxprobe.f30")); err == nil {
		return failed("a file of the box's is in the account's HOME")
	}
	return passed("what was left ended with the box")
}

// asks tells what becomes of a spec. No box of it is ever started.
func (e *evidence) asks(s spec.Spec) (time.Duration, error) {
	since := time.Now()
	t, _, err := e.runner.Prepare(s, turn.Way{First: box.ChildFD, Change: e.changeAsked})
	took := time.Since(since)
	if err == nil {
		t.Abandon()
	}
	return took, err
}

func (e *evidence) changeAsked(p *box.Plan) {
	for _, m := range e.visit.under {
		if change := ofAsked[m.name]; change != nil {
			change(p)
		}
	}
}

func (e *evidence) plantedLink() report.Result {
	with := func(home string) error {
		_, err := e.asks(spec.Spec{V: 1, Kind: "turn", Engine: "none", Bot: "own", Argv: []string{"true"}, Cwd: e.WorkDir, Net: spec.Net{Mode: "none"},
			Home: spec.Home{Mode: "engine", Path: home, Signin: []spec.Signin{{From: e.at("team"), As: ".codex", Mode: "rw-dir"}}}})
		return err
	}
	if err := with(e.at("engine")); err != nil {
		return unclear("without a link it is refused, too: %v", reason.Of(err).Code)
	}
	switch err := with(e.at("planted")); {
	case err == nil:
		return failed("a box was prepared whose mount would follow the link")
	case reason.Of(err).Code != reason.PathRefused:
		return unclear("it was refused for another reason: %v", reason.Of(err).Code)
	}
	return passed("refused")
}

func (e *evidence) oddFiles() report.Result {
	with := func(path string) (time.Duration, error) {
		return e.asks(spec.Spec{V: 1, Kind: "turn", Engine: "none", Bot: "own", Argv: []string{"true"}, Cwd: e.WorkDir, Net: spec.Net{Mode: "none"},
			Home: spec.Home{Mode: "private"}, Paths: spec.Paths{RO: []string{path}}})
	}
	if _, err := with(e.at("odd/plain")); err != nil {
		return unclear("a plain file is refused, too: %v", reason.Of(err).Code)
	}
	for name, path := range map[string]string{"a FIFO": e.at("odd/fifo"), "a socket": e.at("run/podman/podman.sock"), "a device": os.DevNull, "a link": e.at("odd/link")} {
		switch took, err := with(path); {
		case err == nil:
			return failed("%s may enter a box", name)
		case reason.Of(err).Code != reason.PathRefused:
			return unclear("%s was refused for another reason: %v", name, reason.Of(err).Code)
		case took > time.Second:
			return failed("%s held the worker up for %v", name, took)
		}
	}
	return passed("all four are refused")
}

// trapsFired looks for the mark first, and only then shows that a trap works.
func (e *evidence) trapsFired() report.Result {
	if slices.ContainsFunc(e.visit.under, func(m mutation) bool { return m.name == "worker-runs-git" }) {
		e.springTrap()
	}
	if _, err := os.Lstat(e.fired()); err == nil {
		return failed("something of the bot's folders has been run outside the box")
	}
	if err := e.springTrap(); err != nil {
		return unclear("a trap cannot be run: %v", err)
	}
	if _, err := os.Lstat(e.fired()); err != nil {
		return unclear("a trap that was run left no mark")
	}
	return passed("none of %d has run, in two folders", len(traps))
}

// springTrap runs one as a careless program would.
func (e *evidence) springTrap() error {
	code, err := e.shell(e.trap())
	if err == nil && code != 0 {
		err = errors.New("it ended with " + strconv.Itoa(code))
	}
	return err
}

// shell runs a script outside every box, as this user.
func (e *evidence) shell(words ...string) (int, error) {
	shell, err := os.Open("/bin/sh")
	if err != nil {
		return 0, err
	}
	defer shell.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	env := []string{"PATH=/usr/bin:/bin"}
	child, err := e.runner.Spawner.Beside(shell, append([]string{"sh"}, words...), env, null, null)
	if err != nil {
		return 0, err
	}
	return child.Wait(), nil
}

// litter compares the folders with what was laid out and with what the probe
// says that it wrote.
func (e *evidence) litter() report.Result {
	found := false
	for _, dir := range []string{e.WorkDir, e.BotDir} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return unclear("list a folder: %v", err)
		}
		for _, entry := range entries {
			name := entry.Name()
			found = found || name == "boxprobe.w2"
			if name != "boxprobe.w2" && !slices.Contains(e.laidOut[dir], name) {
				return failed("%q was left there", name)
			}
		}
	}
	if !found && e.results["W2"].Verdict == pass {
		return unclear("what the probe wrote is not found")
	}
	return passed("none")
}

// nobodyStays takes the lock that the process held which the probe has left.
func (e *evidence) nobodyStays() report.Result {
	lock, err := os.Open(e.StayLock)
	if err != nil {
		return unclear("open the lock: %v", err)
	}
	defer lock.Close()
	for range 200 { // a killed process lets go when it has been torn down; on a busy machine half a second was too short
		if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return passed("it is gone")
		}
		time.Sleep(10 * time.Millisecond)
	}
	return failed("a process of the box runs on")
}

func (e *evidence) bubblewrapItself() report.Result {
	path, err := box.FindBwrap(e.lookFor)
	if err != nil {
		return failed("it must not make boxes: %v", reason.Of(err).Code)
	}
	if unix.Access(path, unix.X_OK) != nil {
		return unclear("it cannot be run")
	}
	if unix.Access(path, unix.W_OK) == nil {
		return failed("this user can write it")
	}
	return passed("it has no privileges, and only root can change it")
}

// sighting is what was seen of a box while its probe ran.
type sighting struct {
	environ map[string]string // by who: "bubblewrap", "PID 1", "the engine"
	files   []string          // PID 1's
	err     error
}

// sight reads of a running box what its processes were started with. In the
// very moment in which the engine takes boxentry's place there is nothing to
// read of it.
func sight(outer, engine int) (s sighting) {
	for range 100 {
		if s = glance(outer, engine); s.err == nil && s.ofBox() {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	return s
}

func (s sighting) ofBox() bool {
	return strings.Contains("\x00"+s.environ["the engine"], "\x00BOTBOX=1\x00")
}

func glance(outer, engine int) (s sighting) {
	s.environ = map[string]string{}
	first, err := parent(engine)
	s.err = err
	for who, pid := range map[string]int{"bubblewrap": outer, "PID 1": first, "the engine": engine} {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		s.environ[who], s.err = string(text), errors.Join(s.err, err)
	}
	dir := filepath.Join("/proc", strconv.Itoa(first), "fd")
	entries, err := os.ReadDir(dir)
	s.err = errors.Join(s.err, err)
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(dir, entry.Name()))
		s.files, s.err = append(s.files, entry.Name()+" "+target), errors.Join(s.err, err)
	}
	return s
}

func parent(pid int) (int, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(field(string(text), "PPid"))
}

// field gives the value of a line of a status file, or "".
func field(status, name string) string {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (e *evidence) quietOutside() report.Result {
	s := e.seen
	switch {
	case s.err != nil:
		return unclear("look at the box from outside: %v", s.err)
	case !s.ofBox():
		return unclear("not even the engine's own environment was seen")
	}
	for _, who := range []string{"bubblewrap", "PID 1"} {
		if s.environ[who] != "" {
			return failed("%s was started with an environment", who)
		}
	}
	for _, file := range s.files {
		number, target, _ := strings.Cut(file, " ")
		if n, err := strconv.Atoi(number); err != nil || n > 2 && target != "anon_inode:[eventfd]" {
			return failed("PID 1 holds %s", file)
		}
	}
	return passed("two empty environments, and no file of anybody's")
}

func dumpable() (int, error) { return unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0) }

// workerItself reads what a box would gain that got out as its own user.
func workerItself(status string, dumpable func() (int, error)) report.Result {
	text, err := os.ReadFile(status)
	if err != nil {
		return unclear("read it: %v", err)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		value := field(string(text), set)
		if value == "" {
			return unclear("the kernel does not tell %s", set)
		}
		// Who has none cannot empty the bounding set; no_new_privs makes it moot.
		if set != "CapBnd" && strings.Trim(value, "0") != "" {
			return failed("%s is %s", set, value)
		}
	}
	if slices.Contains(strings.Fields(field(string(text), "Uid")), "0") {
		return failed("it is root, or can become it again")
	}
	if nnp := field(string(text), "NoNewPrivs"); nnp != "1" {
		return failed("no_new_privs is %q", nnp)
	}
	if n, err := dumpable(); err != nil || n != 0 {
		return failed("another process of its user can read its memory (dumpable %d)", n)
	}
	return passed("no capability, not root, no new privileges, closed to its own user")
}
