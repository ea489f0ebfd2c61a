package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
)

func open(t testing.TB, dir string) *Log {
	t.Helper()
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func closed(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func request(i int) Entry {
	return Entry{Time: time.Unix(int64(i), 0), Kind: "request", Box: fmt.Sprint("box_", i), Grant: "openai", Status: 200, Up: int64(i)}
}

func TestTheChainGoesOnAfterARestart(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		l := open(t, dir)
		for i := range 10 {
			l.Add(request(i))
		}
		closed(t, l)
	}
	found, err := Verify(dir, "")
	if err != nil || found.Lines != 33 || found.First != 1 || found.Last != 33 {
		t.Fatalf("%+v, %v", found, err)
	}
	var lines []Line
	if err := Read(dir, func(l Line) { lines = append(lines, l) }); err != nil || len(lines) != 33 || lines[1].Box != "box_0" || lines[11].Kind != "open" {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	info, err := os.Stat(filepath.Join(dir, Name))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// Everything that somebody could do to the files, but making the end anew,
// which only the head that a report told shows.
func TestVerifyFindsEveryChange(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	for i := range 20 {
		l.Add(request(i))
	}
	closed(t, l)
	_, head := l.Head()
	path := filepath.Join(dir, Name)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(dir, head); err != nil {
		t.Fatalf("control: %v", err)
	}
	lines := bytes.SplitAfter(good, []byte("\n"))
	lines = lines[:len(lines)-1]
	join := func(parts ...[][]byte) []byte {
		var all []byte
		for _, p := range parts {
			all = append(all, bytes.Join(p, nil)...)
		}
		return all
	}
	for name, bad := range map[string][]byte{
		"a digit":        bytes.Replace(good, []byte("box_7"), []byte("box_8"), 1),
		"a blank":        bytes.Replace(good, []byte(`"box":`), []byte(`"box": `), 1),
		"carriage":       bytes.Replace(good, []byte("}\n"), []byte("}\r\n"), 1),
		"a field":        bytes.Replace(good, []byte(`{"seq":5,`), []byte(`{"seq":5,"x":1,`), 1),
		"one taken out":  join(lines[:5], lines[6:]),
		"one put in":     join(lines[:5], lines[4:]),
		"two exchanged":  join(lines[:5], lines[6:7], lines[5:6], lines[7:]),
		"the first gone": bytes.Replace(join(lines[1:]), []byte(`"seq":2,`), []byte(`"seq":1,`), 1),
		"the end gone":   join(lines[:15]),
		"an empty line":  join(lines[:5], [][]byte{[]byte("\n")}, lines[5:]),
		"no JSON":        join(lines[:5], [][]byte{[]byte("{]\n")}, lines[5:]),
	} {
		if bytes.Equal(bad, good) {
			t.Fatalf("%s: nothing was changed", name)
		}
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(dir, head); err == nil || reason.Of(err).Code != reason.AuditBroken {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A worker that comes after a change goes on, and the change stays visible.
	os.WriteFile(path, join(lines[:10], [][]byte{[]byte("junk\n")}), 0o600)
	closed(t, open(t, dir))
	if _, err := Verify(dir, ""); err == nil {
		t.Error("a change was healed by a restart")
	}
}

func TestATornLineIsCutOffAndSaid(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	l.Add(request(1))
	closed(t, l)
	path := filepath.Join(dir, Name)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"seq":3,"prev":"00`)
	f.Close()
	if found, err := Verify(dir, ""); err != nil || found.Lines != 2 {
		t.Errorf("before: %+v, %v", found, err)
	}
	closed(t, open(t, dir))
	var last Line
	Read(dir, func(l Line) { last = l })
	if found, err := Verify(dir, ""); err != nil || found.Lines != 3 || last.Torn != 19 {
		t.Errorf("after: %+v, %v, torn %d", found, err, last.Torn)
	}
}

// The files are bounded, and the chain goes through all of them.
func TestTheChainGoesThroughTheFiles(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	l.writing.Lock()
	l.most = 2000
	l.writing.Unlock()
	for i := range 200 {
		l.Add(request(i))
		if i%7 == 0 {
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	closed(t, l)
	files, err := filepath.Glob(filepath.Join(dir, Name+"*"))
	if err != nil || len(files) != keep+1 {
		t.Errorf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		if info, err := os.Stat(name); err != nil || info.Size() > 2500 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %d bytes, %v", name, info.Size(), err)
		}
	}
	found, err := Verify(dir, "")
	if err != nil || found.Last != 201 || found.First < 2 || found.Lines != found.Last-found.First+1 {
		t.Errorf("%+v, %v", found, err)
	}
	// The newest file is empty right after a rotation: the one before tells
	// where the chain stands.
	if err := os.Rename(filepath.Join(dir, Name), filepath.Join(dir, Name+".0")); err != nil {
		t.Fatal(err)
	}
	for i := keep; i > 0; i-- {
		os.Rename(fmt.Sprint(filepath.Join(dir, Name), ".", i-1), fmt.Sprint(filepath.Join(dir, Name), ".", i))
	}
	closed(t, open(t, dir))
	if found, err := Verify(dir, ""); err != nil || found.Last != 202 {
		t.Errorf("%+v, %v", found, err)
	}
	os.Remove(filepath.Join(dir, Name+".3"))
	if _, err := Verify(dir, ""); err == nil {
		t.Error("a file in the middle is gone, and nobody noticed")
	}
}

func TestADiskThatTakesNothingCostsLinesNotTime(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	l.writing.Lock() // the writer stands still
	entry := request(1)
	entry.Conversation = strings.Repeat("c", 8000)
	for range maxAhead/8000 + 100 {
		l.Add(entry)
	}
	l.writing.Unlock()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	l.Add(request(2))
	closed(t, l)
	if found, err := Verify(dir, ""); err != nil || found.Lost == 0 || found.Lost > 200 {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 500 {
				l.Add(request(i))
			}
		})
	}
	wg.Wait()
	_, head := l.Head()
	if _, err := VerifySoon(dir, head); err != nil { // while it is open
		t.Error(err)
	}
	closed(t, l)
	l.Add(request(1)) // and nothing comes of it
	if found, err := Verify(dir, head); err != nil || found.Lines != 4001 {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, Name)
	refused := func(what string) {
		t.Helper()
		if l, err := Open(dir); err == nil {
			l.Close()
			t.Errorf("%s: opened", what)
		} else if reason.Of(err).Code != reason.NotYours {
			t.Errorf("%s: %v", what, err)
		}
		os.Remove(path)
	}
	os.WriteFile(path, nil, 0o600)
	os.Chmod(path, 0o644)
	refused("readable by others")
	os.Symlink("/dev/null", path)
	refused("a link")
	closed(t, open(t, dir)) // control
}

// Whatever is in the file: no panic, and a chain that holds holds for a plain
// second reading, too.
func FuzzVerify(f *testing.F) {
	l := &Log{wake: make(chan struct{}, 1)} // one that nobody writes
	l.Add(request(1))
	l.Add(request(2))
	f.Add(l.ahead)
	f.Add(l.ahead[:len(l.ahead)-5])
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var w walker
		if eachLine(bytes.NewReader(data), w.step) != nil {
			return
		}
		n := uint64(0)
		for line := range bytes.SplitAfterSeq(data, []byte("\n")) {
			if !bytes.HasSuffix(line, []byte("\n")) {
				continue
			}
			n++
			if !json.Valid(line) {
				t.Fatalf("%q holds", data)
			}
		}
		if n != w.sum.Lines {
			t.Fatalf("%d lines of %d in %q", w.sum.Lines, n, data)
		}
	})
}
