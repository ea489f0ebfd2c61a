package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Only a read-only mount is a pass: a file that is closed to us in another way,
// or is not there, proves nothing of the mount.
func TestReadOnlyWantsTheMount(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]Verdict{
		file:                         Fail,
		dir:                          Fail, // EISDIR is no read-only mount
		filepath.Join(dir, "absent"): Inconclusive,
		filepath.Join(file, "below"): Inconclusive,
	} {
		if r := readOnly(path); r.Verdict != want {
			t.Errorf("%s: %s (%s), want %s", path, r.Verdict, r.Why, want)
		}
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		path, dir string
		want      bool
	}{
		{"/a/b", "/a", true}, {"/a", "/a", true}, {"/a", "/", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}, {"/b", "/a", false},
	} {
		if got := within(c.path, c.dir); got != c.want {
			t.Errorf("%s in %s: %t", c.path, c.dir, got)
		}
	}
}

// Each mount is walked once, and none through another.
func TestSocketsBelow(t *testing.T) {
	dir := t.TempDir()
	deep, mounted := filepath.Join(dir, "a/b/c"), filepath.Join(dir, "mounted")
	for _, d := range []string{deep, mounted} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var made []string
	for _, d := range []string{dir, deep, mounted} {
		l, err := net.Listen("unix", filepath.Join(d, "s"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		made = append(made, l.Addr().String())
	}
	os.Symlink(made[0], filepath.Join(deep, "link"))
	seen := 0
	got := socketsBelow(dir, map[string]bool{dir: true, mounted: true}, &seen)
	slices.Sort(got)
	want := []string{made[1], made[0]}
	slices.Sort(want)
	if !slices.Equal(got, want) || seen < 7 {
		t.Errorf("found %v among %d, want %v", got, seen, want)
	}
}

// The look at devices finds a terminal that somebody has opened.
func TestOnlySixDevicesFindsOthers(t *testing.T) {
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ptmx.Close()
	if r := onlySixDevices(nil); r.Verdict != Fail {
		t.Errorf("%s (%s)", r.Verdict, r.Why)
	}
}

// A row about another process is inconclusive when it is not the canary, and
// fails when it is, whatever keeps its files closed.
func TestCanaryRows(t *testing.T) {
	me := os.Getpid()
	for name, do := range map[string]func(*Fixture) Result{"P02": canaryClosed, "P04": canaryUntouchable} {
		for marker, want := range map[string]Verdict{filepath.Base(os.Args[0]): Fail, "a mark that nobody has": Inconclusive} {
			if r := do(&Fixture{CanaryPID: me, Marker: marker}); r.Verdict != want {
				t.Errorf("%s, our own process with the mark %q: %s (%s), want %s", name, marker, r.Verdict, r.Why, want)
			}
		}
		if r := do(&Fixture{CanaryPID: 1<<22 + 1, Marker: "x"}); r.Verdict != Pass { // above every number
			t.Errorf("%s, no such process: %s (%s)", name, r.Verdict, r.Why)
		}
	}
}
