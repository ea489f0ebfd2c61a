package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTableIsComplete(t *testing.T) {
	var ids, ofSeed []string
	outside := map[string]bool{}
	for _, c := range outsideRows() {
		outside[c.ID] = true
	}
	for _, c := range table() {
		if slices.Contains(ids, c.ID) {
			t.Errorf("%s stands twice in the table", c.ID)
		}
		ids = append(ids, c.ID)
		if c.Profile == seed {
			ofSeed = append(ofSeed, c.ID)
		}
		if c.Layer == "" || c.Tries == "" || c.Expect == "" || (c.Do == nil) != outside[c.ID] {
			t.Errorf("%s has an empty column", c.ID)
		}
		if !strings.HasPrefix(c.Control, "inside: ") && !strings.HasPrefix(c.Control, "outside: ") {
			t.Errorf("%s: control %q", c.ID, c.Control)
		}
	}
	if !slices.Equal(ofSeed, seedIDs) {
		t.Errorf("seed profile is %v", ofSeed)
	}
	if _, err := json.Marshal(table()); err != nil {
		t.Error(err)
	}
}

// TestEmptyFixtureProvesNothing holds every check that needs the fixture to
// answering inconclusive when it says nothing. The seed's checks all do.
func TestEmptyFixtureProvesNothing(t *testing.T) {
	for _, c := range table() {
		if c.Profile != seed || c.ID == "P1" || c.ID == "P4" || c.ID == "N5" || c.ID == "B3" {
			continue
		}
		if r := run(c, &Fixture{Marker: "m"}, timeout); r.Verdict != Inconclusive {
			t.Errorf("%s: %s (%s)", c.ID, r.Verdict, r.Why)
		}
	}
}

// Of the full profile, those that need the fixture to say anything.
func TestEmptyFixtureProvesNothingOfTheGates(t *testing.T) {
	ids := strings.Fields("S10 N02 N04 N07 N08 N09 N11 N12 N13 N15 N17 N19 N20 B07 B08 B09 B10 B11 B12 B13 B14 L05 L06 L07")
	for _, c := range table() {
		if !slices.Contains(ids, c.ID) {
			continue
		}
		if r := run(c, &Fixture{Marker: "m"}, timeout); r.Verdict != Inconclusive {
			t.Errorf("%s: %s (%s)", c.ID, r.Verdict, r.Why)
		}
	}
}

func TestListening(t *testing.T) {
	table := "  sl  local_address rem_address   st\n" +
		"   0: 0100007F:0C38 00000000:0000 0A 00000000:00000000\n" +
		"   1: 0100007F:46A0 0100007F:8000 01 00000000:00000000\n" +
		"   2: 00000000000000000000000001000000:1F90 0000:0000 0A 0\n" +
		"   3: broken 0 0A\n   4: 0:zz 0 0A 0\n"
	if got := listening(table); !slices.Equal(got, []int{0x0c38, 0x1f90}) {
		t.Errorf("%x", got)
	}
}

// The programs of a few bytes are what Linux runs, where this CPU is theirs,
// and each ends with its own status outside of a box.
func TestSmallPrograms(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		if r := killedFor("a call", int80); r.Verdict != Pass {
			t.Error(r)
		}
		return
	}
	for name, code := range map[string][]byte{"own": own, "int 0x80": int80, "x32": x32} {
		status, err := runCode(code)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// The last two answer with an error where the kernel lacks them; nothing
		// but a filter ends the program.
		if !status.Exited() || status.ExitStatus() != lived {
			t.Errorf("%s: status %#x", name, status)
		}
	}
	if r := killedFor("a call by int 0x80", int80); r.Verdict != Fail {
		t.Errorf("without a box: %s (%s)", r.Verdict, r.Why)
	}
	if r := killedFor("an empty program", []byte{0x0f, 0x0b}); r.Verdict != Inconclusive { // ud2: SIGILL
		t.Errorf("ended by another signal: %s (%s)", r.Verdict, r.Why)
	}
}

func TestCheckThatPanicsOrHangsIsInconclusive(t *testing.T) {
	for name, do := range map[string]func(*Fixture) Result{
		"panic": func(*Fixture) Result { panic("x") },
		"hang":  func(*Fixture) Result { select {} },
	} {
		if r := run(Check{Do: do}, nil, 20*time.Millisecond); r.Verdict != Inconclusive {
			t.Errorf("%s: %s", name, r.Verdict)
		}
	}
	if r := run(Check{Do: func(*Fixture) Result { return pass("fine") }}, nil, timeout); r.Verdict != Pass {
		t.Errorf("control: %s", r.Verdict)
	}
}

// On a slow machine a check that had not come back held all of the box's
// processes, and the next one that needed one counted as a wall that is gone.
func TestFailuresBesideACheckThatIsLate(t *testing.T) {
	hang := run(Check{Do: func(*Fixture) Result { select {} }}, nil, time.Millisecond)
	if back := run(Check{Do: func(*Fixture) Result { panic("x") }}, nil, timeout); !hang.late || back.late {
		t.Errorf("late: %+v %+v", hang, back)
	}
	for _, r := range []Result{pass("fine"), unclear("who knows")} {
		if got := beside("L01", r); got != r {
			t.Errorf("%+v became %+v", r, got)
		}
	}
	if got := beside("", fail("open")); got.Verdict != Fail {
		t.Errorf("alone: %+v", got)
	}
	if got := beside("L01", fail("open")); got.Verdict != Inconclusive || got.Why != "open; but L01 has not come back, and may be the cause" {
		t.Errorf("beside one: %+v", got)
	}
}

func TestWorst(t *testing.T) {
	if r := worst(pass("a"), unclear("b"), fail("c"), pass("d")); r.Verdict != Fail {
		t.Error(r)
	}
	if r := worst(pass("a"), unclear("b"), pass("d")); r.Verdict != Inconclusive {
		t.Error(r)
	}
	if r := worst(pass("a"), pass("d")); r != pass("d") {
		t.Error(r)
	}
	if r := worst(); r.Verdict != Inconclusive {
		t.Error(r)
	}
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	there, other := filepath.Join(dir, "there"), filepath.Join(dir, "other")
	os.WriteFile(there, []byte("has the marker"), 0o600)
	os.WriteFile(other, []byte("something else"), 0o600)
	for path, want := range map[string]Verdict{
		there:                          Fail,
		other:                          Inconclusive,
		filepath.Join(dir, "absent"):   Pass,
		filepath.Join(there, "beyond"): Inconclusive, // ENOTDIR
		dir:                            Inconclusive,
		"relative":                     Inconclusive,
	} {
		if r := unreadable(path, "marker"); r.Verdict != want {
			t.Errorf("%s: %s (%s), want %s", path, r.Verdict, r.Why, want)
		}
	}
}

func TestRefusedWriteWantsTheRightRefusal(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	os.WriteFile(file, nil, 0o600)
	for path, want := range map[string]Verdict{
		dir:                          Fail,
		filepath.Join(dir, "absent"): Pass,
		file:                         Inconclusive, // refused, but for another reason
	} {
		if r := refusedWrite(path, unix.EROFS); r.Verdict != want {
			t.Errorf("%s: %s (%s), want %s", path, r.Verdict, r.Why, want)
		}
	}
}

// TestWithoutABox covers two checks that no mutation can break, for bubblewrap
// has no option to leave their protection out. The kernel is asked another way.
func TestWithoutABox(t *testing.T) {
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r := statusIs("NoNewPrivs", "1"); (r.Verdict == Pass) != (set == 1) || r.Verdict == Inconclusive {
		t.Errorf("no_new_privs is %d: %s", set, r.Verdict)
	}
	var root unix.Statfs_t
	if err := unix.Statfs("/", &root); err != nil {
		t.Fatal(err)
	}
	if r := everyMountNosuid(nil); root.Flags&unix.ST_NOSUID == 0 && r.Verdict != Fail {
		t.Errorf("a setuid bit counts on /: %s (%s)", r.Verdict, r.Why)
	}
	if r := statusIs("NoSuchLine", "1"); r.Verdict != Inconclusive {
		t.Errorf("a line that is not there: %s", r.Verdict)
	}
}

func TestOwnTree(t *testing.T) {
	me := os.Getpid()
	tree := processes{1: 0, 2: 0, me - 1: 1, me: me - 1, me + 1: me, me + 2: me + 1, me + 3: 2, me + 4: 1}
	for pid, want := range map[int]bool{1: true, me - 1: true, me: true, me + 1: true, me + 2: true, 2: false, me + 3: false, me + 4: false} {
		if tree.ours(pid) != want {
			t.Errorf("process %d of me=%d: ours is %v", pid, me, !want)
		}
	}
}

func TestScanFindsAcrossChunksAndBeyondNone(t *testing.T) {
	dir := t.TempDir()
	needle := []byte("needle-0123456789")
	for name, offset := range map[string]int{"start": 0, "mid": 1000, "cut": scanChunk + 10, "cut2": 2*scanChunk + 20} {
		content := append(bytes.Repeat([]byte("x"), offset), needle...)
		file := filepath.Join(dir, name)
		os.WriteFile(file, append(content, "tail"...), 0o600)
		s := scan{needles: [][]byte{needle, []byte("never")}, found: make([]string, 2)}
		if err := s.search([]string{file}); err != nil || s.found[0] != file || s.found[1] != "" {
			t.Errorf("%s: found %q, %v", name, s.found, err)
		}
	}
}

func TestParseStatus(t *testing.T) {
	for text, want := range map[string]int{
		"HTTP/1.1 403 Forbidden\r\n": 403, "HTTP/1.0 200 OK": 200,
		"HTTP/1.1 4": 0, "HTTP/2 200": 0, "": 0, "SSH-2.0-x 200 ": 0, "HTTP/1.1 abc": 0, "HTTP/1.1 -12": 0,
	} {
		if got, ok := parseStatus(text); got*toInt(ok) != want {
			t.Errorf("%q: %d %v, want %d", text, got, ok, want)
		}
	}
}

func toInt(ok bool) int {
	if ok {
		return 1
	}
	return 0
}

func TestForeignInterface(t *testing.T) {
	const dev = "Inter-|\n face |\n    lo: 0 0\n  eth0: 1 2\n"
	const v6 = "0000 80 lo\n0000 40 eth1\n"
	if got := foreign(dev, 2, first); got != "eth0" {
		t.Errorf("dev: %q", got)
	}
	if got := foreign(v6, 0, last); got != "eth1" {
		t.Errorf("v6: %q", got)
	}
	if got := foreign("head\nlo 0\n", 1, first); got != "" {
		t.Errorf("lo alone: %q", got)
	}
}

func FuzzFixture(f *testing.F) {
	f.Add([]byte(`{"marker":"m","key_a":"00ff","key_b":"a5a5"}`))
	f.Add([]byte(`{"marker":"m","key_a":"0","key_b":""}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		fx, err := parseFixture(text)
		if err != nil {
			return
		}
		key, err := fx.key()
		if err != nil || fx.Marker == "" || hex.EncodedLen(len(key)) != len(fx.KeyA) {
			t.Fatalf("accepted %q: key %x, %v", text, key, err)
		}
	})
}

func FuzzMountsAndStatus(f *testing.F) {
	f.Add("36 35 98:0 / /mnt rw,nosuid master:1 - ext3 /dev/root rw,size=1k\n")
	f.Add("HTTP/1.1 200 OK\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range parseMounts(text) {
			if m.point == "" || m.fstype == "" || len(m.options) == 0 || len(m.super) == 0 {
				t.Fatalf("a mount of nothing in %q", text)
			}
		}
		if status, ok := parseStatus(text); ok && (status < 100 || status > 999) {
			t.Fatalf("status %d of %q", status, text)
		}
		foreign(text, 1, first)
		foreign(text, 0, last)
	})
}

// A work folder on the machine's own tmpfs is not the box's, whose mounts show
// their whole file system.
func TestPrivateTmpfs(t *testing.T) {
	text := "1 2 0:5 / /tmp rw - tmpfs tmpfs rw,size=1048576k\n" +
		"1 2 0:6 / /run rw - tmpfs tmpfs rw\n" +
		"1 2 0:7 /check-1/work /home/b/work rw - tmpfs tmpfs rw\n" +
		"1 2 0:8 / /usr ro - ext4 /dev/vda rw\n"
	got := ""
	for _, m := range privateTmpfs(parseMounts(text)) {
		got += fmt.Sprintf("%s %t ", m.point, m.sized())
	}
	if want := "/tmp true /run false "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
