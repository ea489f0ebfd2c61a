package selfcheck

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/report"
)

// TestFixtureIsBoxprobes compares the fields of both sides: a field that one of
// them calls otherwise would be missing in the box, without an error.
func TestFixtureIsBoxprobes(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../../boxprobe/fixture.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		f, ok := n.(*ast.Field)
		if !ok || f.Tag == nil {
			return true
		}
		start, end := f.Type.Pos()-file.FileStart, f.Type.End()-file.FileStart
		theirs[f.Tag.Value] = readAt(t, "../../../boxprobe/fixture.go", int(start), int(end))
		return true
	})
	ours := map[string]string{}
	for f := range reflect.TypeFor[fixture]().Fields() {
		ours["`"+string(f.Tag)+"`"] = f.Type.String()
	}
	if len(ours) == 0 || !maps.Equal(ours, theirs) {
		t.Errorf("ours\n%v\nboxprobe's\n%v", ours, theirs)
	}
}

func readAt(t *testing.T, name string, start, end int) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text[start:end])
}

var twoRows = []row{{ID: "A1", Layer: "a", BrokenBy: []string{"bind-data"}}, {ID: "B1", Layer: "b", BrokenBy: []string{"share-pid", "bind-data"}}}

const (
	lineA = `{"id":"A1","layer":"x","verdict":"pass","ms":3,"why":"a"}` + "\n"
	lineB = `{"id":"B1","layer":"x","verdict":"fail","ms":4,"why":"b"}` + "\n"
	last  = `{"done":true,"count":2,"build":"b1"}` + "\n"
)

func TestReadOutput(t *testing.T) {
	for text, good := range map[string]bool{
		lineA + lineB + last:                  true,
		lineA + lineB:                         true, // without a last line; its caller sees that
		"":                                    true,
		lineA + lineA + last:                  false, // twice
		lineA + last:                          false, // another count
		lineA + lineB + last + lineA:          false, // something after the last
		lineA + lineB + last + last:           false,
		lineA + "x\n":                         false,
		lineA + lineA[:20]:                    false, // cut short
		lineA + "\n" + lineB:                  false,
		strings.TrimSpace(lineA) + lineB:      false, // two in one line
		strings.Repeat("x", lineSize+1):       false,
		strings.Repeat(lineA, outputSize):     false,
		strings.Replace(lineA, "A1", "C1", 1): false, // not of the table
		strings.Replace(lineA, `"pass"`, `"passed"`, 1):   false,
		strings.Replace(lineA, `"ms"`, `"x":1,"ms"`, 1):   false,
		strings.Replace(last, `"b1"`, `""`, 1):            false,
		`{"done":true,"count":0,"build":"b","why":"x"}`:   true,
		`{"id":"A1","verdict":"pass","done":false}` + "x": false,
	} {
		out, err := readOutput(strings.NewReader(text), twoRows)
		if (err == nil) != good {
			t.Errorf("%.80q: %v", text, err)
		}
		if text == lineA+lineB+last && (out.build != "b1" || out.lines["B1"].Verdict != fail || out.lines["A1"].Layer != "a") {
			t.Errorf("read %+v", out)
		}
	}
}

func FuzzReadOutput(f *testing.F) {
	f.Add(lineA + lineB + last)
	f.Add(lineA + lineA)
	f.Add(`{"id":"A1","verdict":"inconclusive","why":"\u001b[31m\u202e"}`)
	f.Fuzz(func(t *testing.T, text string) {
		out, err := readOutput(strings.NewReader(text), twoRows)
		if err != nil {
			return
		}
		if len(out.lines) > len(twoRows) || len(out.lines) > strings.Count(text, "\n")+1 {
			t.Fatalf("%d results of %q", len(out.lines), text)
		}
		for id, r := range out.lines {
			if r.ID != id || r.Layer == "" || !slices.Contains([]string{pass, fail, inconclusive}, r.Verdict) || strings.ContainsAny(r.Why, "\x1b\n\u202e") {
				t.Fatalf("%+v of %q", r, text)
			}
		}
	})
}

func TestJudge(t *testing.T) {
	lines := map[string]report.Result{"A1": {ID: "A1", Verdict: pass, MS: 3}, "B1": {ID: "B1", Verdict: fail}}
	for name, c := range map[string]struct {
		lines map[string]report.Result
		ended string
		dead  map[string]string
		want  string
	}{
		"all reported":               {lines, "", nil, "pass fail"},
		"nothing reported":           {nil, "", nil, "inconclusive inconclusive"},
		"the probe died":             {lines, "it died", nil, "inconclusive inconclusive"},
		"a dead control of a pass":   {lines, "", map[string]string{"A1": "dead"}, "inconclusive fail"},
		"a dead control of a fail":   {lines, "", map[string]string{"B1": "dead"}, "pass fail"},
		"a dead control of no check": {lines, "", map[string]string{"C1": "dead"}, "pass fail"},
	} {
		results := judge(twoRows, c.lines, c.ended, c.dead)
		got := []string{}
		for i, r := range results {
			got = append(got, r.Verdict)
			if r.ID != twoRows[i].ID || r.Layer != twoRows[i].Layer || (r.Verdict == inconclusive && r.Why == "") {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

func TestChosenAndDeclared(t *testing.T) {
	all, err := chosen([]string{"share-pid", "bind-data", "share-pid"})
	if err != nil || len(all) != 2 || all[0].name != "bind-data" {
		t.Fatalf("%v, %v", all, err)
	}
	var o outside
	if got := o.declared(twoRows, all); !slices.Equal(got, []string{"A1", "B1"}) {
		t.Errorf("declared %v", got)
	}
	if got := o.declared(twoRows, nil); len(got) != 0 {
		t.Errorf("declared %v without a mutation", got)
	}
	for _, names := range [][]string{{"bind-data", "bind"}, {""}, {"Bind-Data"}, {"seccomp-off", "deny-too-much"}} {
		if _, err := chosen(names); reason.Of(err).Code != reason.Usage {
			t.Errorf("%q: %v", names, err)
		}
	}
	net := []row{{ID: "N4", BrokenBy: []string{shareNet}}, {ID: "N5", BrokenBy: []string{shareNet}}}
	under, _ := chosen([]string{shareNet})
	bare := outside{lone: true, fixture: fixture{NoRouteOutside: true}}
	if got := bare.declared(net, under); len(got) != 0 {
		t.Errorf("declared %v where there is nothing to share", got)
	}
}

// TestEachControlNoticesItsOwn breaks what the controls look at, one thing at a
// time, and names the checks that then prove nothing.
func TestEachControlNoticesItsOwn(t *testing.T) {
	remove := func(name func(*evidence) string) func(*evidence) {
		return func(e *evidence) { os.Remove(name(e)) }
	}
	for what, c := range map[string]struct {
		dead string
		harm func(*evidence)
	}{
		"nothing":         {"", func(*evidence) {}},
		"no database":     {"D1", remove(func(e *evidence) string { return e.Database })},
		"an empty config": {"D2", func(e *evidence) { os.WriteFile(e.Config, nil, 0o600) }},
		"no login":        {"D3", remove(func(e *evidence) string { return e.Login })},
		"a silent socket": {"D4", func(e *evidence) { e.socket.listener.Close() }},
		"no other bot":    {"D5", remove(func(e *evidence) string { return e.OtherBotFile })},
		"no other token":  {"D6", remove(func(e *evidence) string { return e.OtherToken })},
		"all names put back": {"D7", func(e *evidence) {
			e.PutBacks = append(e.PutBacks, "messages.db", "config.json", "sessions.json", "server.sock")
		}},
		"no ::1 or mapped address":       {"N02", func(e *evidence) { e.mapped.listener.Close() }},
		"a silent name server":           {"N04", func(e *evidence) { e.UDPPort = e.LoopbackPort }},
		"no abstract socket":             {"N07", func(e *evidence) { e.abstract.listener.Close() }},
		"a third look-up":                {"N12", func(e *evidence) { e.dns.LookupNetIP(t.Context(), "ip", turningName+".") }},
		"somebody at the second answer":  {"N12", func(e *evidence) { status(e.turned.address, "/", "") }},
		"a redirect of no sign-in":       {"N17", func(e *evidence) { e.delivered = errors.New("nobody") }},
		"a token of nobody's":            {"B15", func(e *evidence) { e.ours = "omb_t0_nobodys" }},
		"a decoy that was reached":       {"B07", func(e *evidence) { status(e.decoy.address, "/", "") }},
		"a redirect that was followed":   {"B13", func(e *evidence) { status(e.away.address, "/", "") }},
		"tokens that never lived":        {"B08", func(e *evidence) { e.lived = errors.New("no") }},
		"another box's token that lives": {"B10", func(e *evidence) { e.ForeignToken, _ = e.token(e.box+"_other", 0) }},
		"a call with more":               {"B4", func(e *evidence) { e.provider.note("B4", false) }},
		"a call that was to be refused":  {"B11", func(e *evidence) { e.provider.note("B11-refused", true) }},
		"a dead canary":                  {"P02 P04 P1 P2 P3", func(e *evidence) { e.canary.Kill(); e.canary.Wait() }},
		"a silent port":                  {"N1", func(e *evidence) { e.loopback.listener.Close() }},
		"a silent server":                {"N14 N15 N2", func(e *evidence) { e.server.Close(); e.server.forget() }},
		"another route":                  {"N15 N2", func(e *evidence) { status(e.server.address, e.OtherRoute, "") }},
		"no route asked":                 {"N14 N15 N2", func(e *evidence) { e.server.forget() }},
		"a silent address":               {"N3", func(e *evidence) { e.nearby.listener.Close() }},
		"an unreachable one":             {"N4", func(e *evidence) { e.Routed = append(e.Routed, "fe80::1%no-such-interface") }},
		"a name that was let in":         {"E02 E05 E06 E1 E2 E3", func(e *evidence) { e.dropped = e.dropped[1:] }},
		"no file in /dev/shm":            {"F29", remove(func(e *evidence) string { return e.ShmFile })},
		"no file in /tmp":                {"T1", remove(func(e *evidence) string { return e.TmpFile })},
		"no file in /var/tmp":            {"T2", remove(func(e *evidence) string { return e.VarTmpFile })},
		"no file in /run":                {"T2", remove(func(e *evidence) string { return e.RunFile })},
		"a new folder":                   {"W1", func(e *evidence) { os.Mkdir(filepath.Join(e.Unbound[0], "x"), 0o700) }},
		"a file in a new place":          {"S15", func(e *evidence) { os.Mkdir(filepath.Join(e.at("walled"), "x"), 0o700) }},
		"a write that is lost":           {"W2", remove(func(e *evidence) string { return filepath.Join(e.WorkDir, "boxprobe.w2") })},
		"a stranger":                     {"N11 N20 W2", func(e *evidence) { knockTwice(t, e.loopback) }},
		"N1 that came not":               {"N11 N20 W2", func(e *evidence) { e.results = map[string]report.Result{"N1": {Verdict: fail}} }},
		"no session key": {"S10", func(e *evidence) {
			e.spawner.On(func() { unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) })
		}},
		"no grant":            {"B1 B2", func(e *evidence) { e.grants = nil }},
		"a silent provider":   {"B07 B08 B09 B11 B12 B13 B14 B15 B4 B5 B6", func(e *evidence) { e.provider.Close() }},
		"a second call":       {"B5", func(e *evidence) { e.provider.note("B5", true) }},
		"no call":             {"B07 B08 B09 B10 B11 B12 B13 B14 B4 B5 B6", func(e *evidence) { e.provider.calls = nil }},
		"no file of HOME":     {"F14", remove(func(e *evidence) string { return e.HomeFile })},
		"nothing like /.fly":  {"F13", remove(func(e *evidence) string { return e.at("fly/api") })},
		"a silent service":    {"F16", func(e *evidence) { e.service.listener.Close() }},
		"no shared memory":    {"P08", func(e *evidence) { e.SharedKey ^= 2 }},
		"no terminal":         {"P11", func(e *evidence) { e.terminal[1] = nil }},
		"no files about CPUs": {"F12", func(e *evidence) { e.CPUFiles = []string{"/nonexistent"} }},
		"nothing exchanged":   {"F23", func(e *evidence) { os.Rename(e.at("another"), e.at("nobody")) }},
	} {
		t.Run(what, func(t *testing.T) {
			e := visited(t)
			c.harm(e)
			dead := e.dead(after)
			for id, why := range e.dead(before) {
				if !(id == "B10" && dead[id] == "") { // its token is good before and dead afterwards
					dead[id] = why
				}
			}
			if got := strings.Join(slices.Sorted(maps.Keys(dead)), " "); got != c.dead {
				t.Errorf("dead %q, want %q: %v", got, c.dead, dead)
			}
		})
	}
}

// visited is the evidence after a probe that found every wall standing.
func visited(t *testing.T) *evidence {
	t.Helper()
	probe, err := os.Open(filepath.Join(built(t), "boxprobe"))
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	o := &outside{spawner: box.NewSpawner()}
	t.Cleanup(o.spawner.Close)
	t.Cleanup(func() { o.remove() })
	if err := o.layOut(box.Program{File: probe}); err != nil {
		t.Fatal(err)
	}
	if o.ours, err = o.token(o.box, 0); err != nil {
		t.Fatal(err)
	}
	e := &evidence{outside: o, dropped: o.names(), grants: []string{granted}}
	if dead := e.dead(before); len(dead) > 0 {
		t.Fatalf("before the visit: %v", dead)
	}
	if err := o.exchange(); err != nil {
		t.Fatal(err)
	}
	status(o.server.address, o.InternalRoute, "")
	for _, id := range strings.Fields(brokered) {
		for range max(1, callsOf[id]) {
			e.provider.note(id, true)
		}
	}
	for range 2 {
		o.dns.LookupNetIP(t.Context(), "ip", turningName+".")
	}
	o.broker.Revoke(o.box + "_other") // as a token does that another box shows
	for _, dir := range []string{o.WorkDir, o.BotDir} {
		if err := os.WriteFile(filepath.Join(dir, "boxprobe.w2"), []byte(o.Marker), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// knockTwice is a knock of ours and one of a stranger.
func knockTwice(t *testing.T, d *door) {
	t.Helper()
	for range 2 {
		if err := d.knock(); err != nil {
			t.Fatal(err)
		}
	}
	d.own--
}

func TestProviderSeesWhatCameAlong(t *testing.T) {
	for name, headers := range map[string]map[string]string{
		"":              {},
		"the token":     {"X-Other": "omb_t0_abc"},
		"an own header": {"Authorization": "Bearer boxprobe-own"},
		"an own cookie": {"Cookie": "a=b"},
		"the wrong key": {keyHeader: "sk-other"},
		"no key":        {keyHeader: ""},
	} {
		p := provider{key: "sk-good", ok: "yes", path: "/v1/models"}
		r := httptest.NewRequest("GET", "/v1/models", nil)
		r.Host = p.address.String()
		r.Header.Set(keyHeader, "sk-good")
		for k, v := range headers {
			r.Header.Set(k, v)
		}
		p.ServeHTTP(httptest.NewRecorder(), r)
		if calls, odd := p.called(""); calls != 1 || (odd == 0) != (name == "") {
			t.Errorf("%q: %d calls, %d odd", name, calls, odd)
		}
	}
}

func TestRemoveTakesEverything(t *testing.T) {
	before := litter(t)
	e := visited(t)
	folders := []string{e.root, filepath.Dir(e.TmpFile), filepath.Dir(e.VarTmpFile), filepath.Dir(e.RunFile), filepath.Dir(e.ShmFile)}
	for _, dir := range folders {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 || before[dir] {
			t.Errorf("%s: %v, %v", dir, st, err)
		}
	}
	pid := e.CanaryPID
	e.remove()
	for _, dir := range folders {
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if e.holdsMarker(e.canaryFile("cmdline")) == nil {
		t.Errorf("the canary %d lives", pid)
	}
	for name, d := range map[string]*door{"socket": e.socket, "loopback": e.loopback, "nearby": e.nearby, "mapped": e.mapped, "abstract": e.abstract} {
		if d.knock() == nil {
			t.Errorf("%s still answers", name)
		}
	}
}

// Nobody's folder is one that no living process holds, has our name and is our
// user's. Nothing else is touched, whatever it is called.
func TestSweepTakesNobodysFolders(t *testing.T) {
	o := &outside{}
	defer o.remove()
	held, err := o.folder("/tmp")
	if err != nil {
		t.Fatal(err)
	}
	make := func(kind string, do func(name string) error) string {
		name := filepath.Join("/tmp", prefix+kind+random())
		if err := do(name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(name) })
		return name
	}
	outside := t.TempDir()
	nobodys := make("empty", func(name string) error { return os.Mkdir(name, 0o700) })
	full := make("full", func(name string) error { return os.MkdirAll(filepath.Join(name, "a/b"), 0o700) })
	kept := map[string]string{
		"a folder that is held": held,
		"a file":                make("file", func(name string) error { return os.WriteFile(name, nil, 0o600) }),
		"a link":                make("link", func(name string) error { return os.Symlink(outside, name) }),
		"a pipe":                make("pipe", func(name string) error { return unix.Mkfifo(name, 0o600) }),
		"what a link names":     outside,
	}
	if os.Geteuid() == 0 {
		kept["another user's"] = make("theirs", func(name string) error {
			return errors.Join(os.Mkdir(name, 0o700), os.Chown(name, 1, 1))
		})
	}
	sweep()
	for _, name := range []string{nobodys, full} {
		if _, err := os.Lstat(name); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	for what, name := range kept {
		if _, err := os.Lstat(name); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := o.remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(held); !os.IsNotExist(err) {
		t.Errorf("removed by its own run: %v", err)
	}
}

// Runs that begin at once sweep while others lay out: none loses a folder.
func TestSweepAndFolderAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				o := &outside{}
				sweep()
				dir, err := o.folder("/tmp")
				if err == nil {
					sweep()
					err = os.WriteFile(filepath.Join(dir, "canary"), nil, 0o600)
				}
				if err := errors.Join(err, o.remove()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
