package botuser

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
)

func TestParseRange(t *testing.T) {
	for text, want := range map[string]Range{
		"300000-365535": {300000, 365535}, "400000-400000": {400000, 400000}, "1-2": {1, 2}, // Check refuses it
		"": {}, "300000": {}, "-": {}, "2-1": {}, "300000-": {}, "+1-2": {}, "01-2": {}, "300000-1000000": {}, "300000-365535 ": {},
		"a-b": {}, "-1-5": {}, "300000-4294967296": {},
	} {
		got, err := ParseRange(text)
		if got != want || (err == nil) != (want != Range{}) {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
}

func TestRangeIsNobodyElses(t *testing.T) {
	free := Files{"root:x:0:0::/:\nmaus:x:999:995::/:\n# a comment\n+::::::\n", "root:x:0:\n", "a:100000:65536\nb:165536:65536\n", "a:100000:65536\n"}
	if err := DefaultRange.Check(free); err != nil {
		t.Errorf("control: %v", err)
	}
	with := func(f Files, change func(*Files)) Files { change(&f); return f }
	for _, c := range []struct {
		what string
		r    Range
		f    Files
		says string
	}{
		{"accounts", Range{60000, 70000}, free, "accounts"},
		{"DynamicUser", Range{65000, 65100}, free, "DynamicUser"},
		{"nobody", Range{65535, 65600}, free, "nobody"},
		{"containers", Range{500000, 600000}, free, "containers"},
		{"an account", DefaultRange, with(free, func(f *Files) { f.Passwd += "x:x:300007:1::/:\n" }), "/etc/passwd"},
		{"a group", DefaultRange, with(free, func(f *Files) { f.Group += "x:x:365535:\n" }), "/etc/group"},
		{"subordinate users", DefaultRange, with(free, func(f *Files) { f.Subuid += "c:296608:65536\n" }), "/etc/subuid"},
		{"subordinate groups", DefaultRange, with(free, func(f *Files) { f.Subgid += "c:365535:1\n" }), "/etc/subgid"},
		{"a line that says nothing", DefaultRange, with(free, func(f *Files) { f.Subgid += "c:x:1\n" }), "/etc/subgid"},
	} {
		if err := c.r.Check(c.f); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if err := DefaultRange.Check(with(free, func(f *Files) { f.Subuid += "c:365536:65536\nd:200000:0\ne:299999:1\n" })); err != nil {
		t.Errorf("neighbours: %v", err)
	}
}

func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T, dir string, r Range) *Table {
	t.Helper()
	table, err := Open(dir, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(table.Close)
	return table
}

func TestABotKeepsItsUser(t *testing.T) {
	dir := folder(t)
	for range 2 { // and after a restart
		table := open(t, dir, DefaultRange)
		for i, bot := range []string{"alice", "bob", "alice", "A.b_c-1"} {
			want := []uint32{300000, 300001, 300000, 300002}[i]
			if got, err := table.User(bot); err != nil || got != want {
				t.Errorf("%s is %d, %v", bot, got, err)
			}
		}
	}
	for _, bot := range []string{"", ".x", "a b", "a\nb", "a/b", "ä", strings.Repeat("x", 129)} {
		if _, err := open(t, dir, DefaultRange).User(bot); err == nil {
			t.Errorf("%q is a bot", bot)
		}
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 {
		t.Errorf("left behind: %v %v", names, err)
	}
}

func TestNoUserIsGivenTwice(t *testing.T) {
	table := open(t, folder(t), Range{300000, 300001})
	for _, bot := range []string{"a", "b"} {
		if _, err := table.User(bot); err != nil {
			t.Error(err)
		}
	}
	if id, err := table.User("c"); !errors.Is(err, ErrFull) {
		t.Errorf("%d %v", id, err)
	}
}

// A table that cannot be written gives nothing away that it would forget.
func TestAUserThatIsNotOnTheDiskIsNobodys(t *testing.T) {
	dir := folder(t)
	table := open(t, dir, DefaultRange)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if id, err := table.User("a"); err == nil || table.Bots() != 0 {
		t.Errorf("%d", id)
	}
}

func TestTablesThatAreRefused(t *testing.T) {
	const good = "bot-users 1 300000-365535\n300000 a\n300001 b\n"
	for what, text := range map[string]string{
		"no end": strings.TrimSuffix(good, "\n"), "another version": strings.Replace(good, " 1 ", " 2 ", 1),
		"another range": strings.Replace(good, "365535", "365534", 1), "a gap": strings.Replace(good, "300001", "300002", 1),
		"twice": strings.Replace(good, "b", "a", 1), "a bad name": strings.Replace(good, "b\n", "../b\n", 1), "no name": "bot-users 1 300000-365535\n300000\n",
		"an empty line": good + "\n", "text": "hello",
	} {
		dir := folder(t)
		os.WriteFile(filepath.Join(dir, fileName), []byte(text), 0o600)
		if _, err := Open(dir, DefaultRange); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	for what, plant := range map[string]func(string) error{
		"open to others": func(p string) error { return errors.Join(os.WriteFile(p, []byte(good), 0o600), os.Chmod(p, 0o644)) },
		"a link": func(p string) error {
			return errors.Join(os.WriteFile(p+"x", []byte(good), 0o600), os.Symlink(p+"x", p))
		},
		"two names": func(p string) error { return errors.Join(os.WriteFile(p, []byte(good), 0o600), os.Link(p, p+"x")) },
		"a folder":  func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		dir := folder(t)
		if err := plant(filepath.Join(dir, fileName)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, DefaultRange); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	dir := folder(t)
	os.WriteFile(filepath.Join(dir, fileName), []byte(good), 0o600)
	if table := open(t, dir, DefaultRange); table.Bots() != 2 {
		t.Errorf("control: %d bots", table.Bots())
	}
}

func FuzzTable(f *testing.F) {
	f.Add("bot-users 1 300000-365535\n300000 a\n300001 b\n")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := parse(text, DefaultRange)
		if err == nil && text != "" && table.text() != text {
			t.Fatalf("%q reads back %q", text, table.text())
		}
	})
}

func frame(verb wire.Verb, kv ...string) wire.Frame {
	f := wire.Frame{Verb: verb, Args: map[string]string{}}
	for i := 0; i < len(kv); i += 2 {
		f.Args[kv[i]] = kv[i+1]
	}
	return f
}

// What a worker may not ask for is an error, and then it is replaced.
func TestLeases(t *testing.T) {
	l := New(open(t, folder(t), Range{300000, 300000}), privdrop.Account{UID: 999, GID: 995})
	r, err := l.Serve(1, frame(wire.UIDLease, "bot", "a"))
	if err != nil || r.Verb != wire.UIDLeased || fmt.Sprint(r.Keys) != "[lease u1 uid 300000]" {
		t.Fatalf("%v %v", r, err)
	}
	if r, err := l.Serve(1, frame(wire.UIDLease, "bot", "b")); err != nil || r.Verb != wire.UIDRefused || r.Keys[1] != string(reason.BotUsersFull) {
		t.Errorf("a full table: %v %v", r, err)
	}
	for _, f := range []wire.Frame{
		frame(wire.UIDMap, "lease", "u9", "pid", "2"), frame(wire.UIDRelease, "lease", "u9"), frame(wire.BoxKill, "lease", "u9"),
	} {
		if r, err := l.Serve(1, f); err == nil {
			t.Errorf("%s of an unknown lease: %v", f.Verb, r)
		}
	}
	if r, err := l.Serve(1, frame(wire.UIDRelease, "lease", "u1")); err != nil || r.Verb != "" {
		t.Errorf("release: %v %v", r, err)
	}
	if _, err := l.Serve(1, frame(wire.UIDRelease, "lease", "u1")); err == nil {
		t.Error("a lease was given back twice")
	}
	l.Serve(1, frame(wire.UIDLease, "bot", "a"))
	l.Begin()
	if _, err := l.Serve(1, frame(wire.UIDMap, "lease", "u2", "pid", "2")); err == nil {
		t.Error("a lease outlives its worker")
	}
	for i := range MaxOpen + 1 {
		if _, err := l.Serve(1, frame(wire.UIDLease, "bot", "a")); (err != nil) != (i == MaxOpen) {
			t.Errorf("lease %d: %v", i, err)
		}
	}
	var none *Leases
	if _, err := none.Serve(1, frame(wire.UIDLease, "bot", "a")); err == nil {
		t.Error("served without a table")
	}
}
