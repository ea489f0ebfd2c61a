package selfcheck

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/worker/internal/report"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// control is something outside that a check's pass rests on: without it, an
// attempt that failed may have been one that fails everywhere.
type control struct {
	ids  string
	when when
	what string
	test func(*evidence) error // nil when it holds
}

type when int

const (
	before when = 1 << iota
	after
	both = before | after
)

// evidence is what the controls look at.
type evidence struct {
	*outside
	dropped []string // names that the worker kept out of the box
	grants  []string // of the box's token
	results map[string]report.Result

	delivered error // of the redirect: nil if it was answered in the box
	visit     *visit
	runner    *turn.Runner
	seen      sighting
}

var controls = []control{
	{"D1", both, "messages.db can be read outside", func(e *evidence) error { return e.holdsMarker(e.Database) }},
	{"D2", both, "config.json can be read outside", func(e *evidence) error { return e.holdsMarker(e.Config) }},
	{"D3", both, "the login can be read outside", func(e *evidence) error { return e.holdsMarker(e.Login) }},
	{"D4", both, "the server's socket answers outside", func(e *evidence) error { return e.socket.knock() }},
	{"D5", both, "the other bot's file can be read outside", func(e *evidence) error { return e.holdsMarker(e.OtherBotFile) }},
	{"D6", both, "the other hook token can be read outside", func(e *evidence) error { return e.holdsMarker(e.OtherToken) }},
	{"D7", both, "the data folder holds more names outside", (*evidence).moreNames},
	{"P1 P3", both, "the canary's command line can be read outside", func(e *evidence) error { return e.holdsMarker(e.canaryFile("cmdline")) }},
	{"P2", both, "the canary's environment can be read outside", func(e *evidence) error { return e.holdsMarker(e.canaryFile("environ")) }},
	{"N1", both, "the port answers outside", func(e *evidence) error { return e.loopback.knock() }},
	{"N2 N14 N15", before, "the server answers both routes outside", (*evidence).bothRoutes},
	{"N2 N15", after, "the server was asked for the internal route only", (*evidence).internalOnly},
	{"N14", after, "the server was asked", (*evidence).internalAsked},
	{"N02", both, "the ports answer outside", (*evidence).otherLoopbacks},
	{"N04", both, "the name server answers outside", func(e *evidence) error { return e.askDatagram() }},
	{"N07", both, "the abstract socket answers outside", func(e *evidence) error { return e.abstract.knock() }},
	{"N11 N20", after, "nobody came to this machine through the egress gate", (*evidence).onlyN1Came},
	{"N12", after, "the name was looked up once for each answer, and nobody was sent to this machine", (*evidence).turnedTwice},
	{"N17", after, "the probe's answer came back", func(e *evidence) error { return e.delivered }},
	{"N3", both, "the address answers outside", func(e *evidence) error { return e.nearby.knock() }},
	{"N4", both, "this machine has a route to each address", (*evidence).allRouted},
	{"E1 E2 E3", before, "the names were in the environment that the box was asked with", (*evidence).namesDropped},
	{"T1", both, "the file in /tmp can be read outside", func(e *evidence) error { return e.holdsMarker(e.TmpFile) }},
	{"T2", both, "the files in /var/tmp and /run can be read outside", func(e *evidence) error {
		return errors.Join(e.holdsMarker(e.VarTmpFile), e.holdsMarker(e.RunFile))
	}},
	{"W1", both, "the folders outside are as they were", (*evidence).unchanged},
	{"W2", after, "the writes landed, and nobody came through the egress gate", (*evidence).landed},
	{"S15", both, "the folder can be written, and nothing is in it", (*evidence).walledEmpty},
	{"S10", both, "the key can be read in the session", func(e *evidence) error { return e.readSessionKey() }},
	{"B1 B2", before, "the worker was given the key", (*evidence).keyGiven},
	{brokered, before, "the provider answers to the key and to nothing else", (*evidence).providerStrict},
	{"B07", after, "nobody came to the decoy", func(e *evidence) error { return e.decoy.alone() }},
	{"B13", after, "nobody followed the redirect", func(e *evidence) error { return e.away.alone() }},
	{"B08", before, "the tokens were good until they ended", func(e *evidence) error { return e.lived }},
	{"B15", before, "the probe's token is good before it runs", func(e *evidence) error { return e.ownIs(e.ours, http.StatusOK) }},
	{"B10", before, "the other token is good on its own listener", func(e *evidence) error { return e.tokenIs(e.other, e.ForeignToken, http.StatusOK) }},
	{"B10", after, "the other token is dead on its own listener", func(e *evidence) error { return e.tokenIs(e.other, e.ForeignToken, http.StatusUnauthorized) }},
}

// brokered are the checks that call the provider.
const brokered = "B4 B5 B6 B07 B08 B09 B10 B11 B12 B13 B14"

// dead tests the controls of a moment and gives, by check, what failed.
func (e *evidence) dead(now when) map[string]string {
	dead := map[string]string{}
	if now == after {
		for _, id := range strings.Fields(brokered) {
			if err := e.calledRightly(id); err != nil {
				dead[id] = "the provider was not called as it should be: " + err.Error()
			}
		}
	}
	for _, c := range slices.Concat(controls, fullControls) {
		if c.when&now == 0 {
			continue
		}
		if err := c.test(e); err != nil {
			for _, id := range strings.Fields(c.ids) {
				dead[id] = "it does not hold outside that " + c.what
			}
		}
	}
	return dead
}

func (e *evidence) holdsMarker(path string) error {
	text, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(text), e.Marker) {
		err = errors.New("the marker is not in it")
	}
	return err
}

func (e *evidence) canaryFile(name string) string {
	return filepath.Join("/proc", strconv.Itoa(e.CanaryPID), name)
}

func (e *evidence) moreNames() error {
	entries, err := os.ReadDir(e.DataDir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !slices.Contains(e.PutBacks, entry.Name()) {
			return nil
		}
	}
	return errors.New("it does not")
}

func (e *evidence) bothRoutes() error {
	for _, path := range []string{e.InternalRoute, e.OtherRoute} {
		if code, err := status(e.server.address, path, ""); err != nil || code != http.StatusOK {
			return fmt.Errorf("%s: %d, %w", path, code, err)
		}
	}
	e.server.forget()
	return nil
}

func (e *evidence) internalOnly() error {
	asked := e.server.wasAsked()
	if len(asked) == 0 || slices.ContainsFunc(asked, func(path string) bool { return path != e.InternalRoute }) {
		return fmt.Errorf("asked for %q", asked)
	}
	return nil
}

func (e *evidence) internalAsked() error {
	if !slices.Contains(e.server.wasAsked(), e.InternalRoute) {
		return errors.New("it was not")
	}
	return nil
}

func (e *evidence) allRouted() error {
	var failed error
	for _, address := range e.Routed {
		failed = errors.Join(failed, routed(address))
	}
	return failed
}

func (e *evidence) namesDropped() error {
	for _, name := range e.names() {
		if !slices.Contains(e.dropped, name) {
			return errors.New(name + " was not")
		}
	}
	return nil
}

// names are those that no box gets.
func (o *outside) names() []string {
	return slices.Concat(o.EnvCloud, o.EnvCredentials, o.EnvUnlisted, o.EnvLoaders, o.EnvAgents, o.EnvRandom)
}

func (e *evidence) unchanged() error {
	for _, dir := range append(e.Unbound, e.at("code")) {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			return errors.New("one is not empty")
		}
	}
	return nil
}

// landed also counts who came to the port of N1: the gate must not have, and
// the probe itself came only if N1 found the way open.
func (e *evidence) landed() error {
	return errors.Join(e.onlyN1Came(), e.holdsMarker(filepath.Join(e.WorkDir, "boxprobe.w2")), e.holdsMarker(filepath.Join(e.BotDir, "boxprobe.w2")))
}

func (e *evidence) walledEmpty() error {
	if entries, err := os.ReadDir(e.at("walled")); err != nil || len(entries) > 0 {
		return errors.New("something is in it")
	}
	return unix.Access(e.at("walled"), unix.W_OK)
}

func (e *evidence) keyGiven() error {
	if !slices.Equal(e.grants, []string{granted}) {
		return fmt.Errorf("the grants are %q", e.grants)
	}
	return nil
}

func (e *evidence) providerStrict() error {
	good, err := status(e.provider.address, e.Call, e.key)
	bad, err2 := status(e.provider.address, e.Call, "sk-ant-wrong")
	none, err3 := status(e.provider.address, e.Call, "")
	if good != http.StatusOK || bad != http.StatusUnauthorized || none != http.StatusUnauthorized {
		return errors.Join(errors.New("it does not"), err, err2, err3)
	}
	return nil
}

// callsOf are how many calls of a check's must arrive; one, where none is named.
var callsOf = map[string]int{"B07": 4, "B08": 2}

// calledRightly knows which calls of each check must arrive, and that no other
// may: none that the broker was to refuse, none with more than the key.
func (e *evidence) calledRightly(id string) error {
	want := callsOf[id]
	if want == 0 {
		want = 1
	}
	calls, odd := e.provider.called(id)
	refused, _ := e.provider.called(id + "-refused")
	if calls != want || odd != 0 || refused != 0 {
		return fmt.Errorf("%d calls, %d of them with more, %d that were to be refused", calls, odd, refused)
	}
	return nil
}

func (e *evidence) onlyN1Came() error {
	var expected int64
	if e.results["N1"].Verdict == fail {
		expected = 1
	}
	if e.loopback.strangers() != expected {
		return errors.New("somebody came")
	}
	return nil
}

func (e *evidence) otherLoopbacks() error {
	err := e.mapped.knock()
	if e.sixth != nil {
		err = errors.Join(err, e.sixth.knock())
	}
	return err
}

func (e *evidence) turnedTwice() error {
	if n := e.dns.asked(); n != 2 || e.turned.came.Load() != 0 {
		return fmt.Errorf("it was looked up %d times, and %d came", n, e.turned.came.Load())
	}
	return nil
}

func (s *origin) alone() error {
	if s.came.Load() != 0 {
		return errors.New("somebody came")
	}
	return nil
}
