package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// Summary is what Verify found.
type Summary struct {
	Lines uint64 `json:"lines"`
	First uint64 `json:"first"` // number of the oldest line that is kept
	Last  uint64 `json:"last"`
	Head  string `json:"head"` // SHA-256 of the last line
	Lost  uint64 `json:"lost"` // lines that the disk did not take
}

var errBehind = errors.New("the newest line that the worker's report names is not there: the end was cut off, or the chain made anew")

// walker follows the chain through its files.
type walker struct {
	sum  Summary
	want string // a line that must be there, by its sum
	seen bool
}

// Read gives every line to each, oldest first, and checks nothing but that it
// is a line.
func Read(dir string, each func(Line)) error {
	return through(dir, func(raw []byte) error {
		l, err := readLine(raw)
		if err == nil {
			each(l)
		}
		return err
	})
}

// Verify follows the chain. anchor is the sum of a line that must be in it, as
// a report told; empty = none. An error names the file and the line.
func Verify(dir, anchor string) (Summary, error) {
	found, err := verify(dir, anchor)
	if err != nil && !errors.Is(err, errBehind) { // or the files moved up while they were read
		found, err = verify(dir, anchor)
	}
	return found, err
}

// VerifySoon waits a moment for the anchor: the log is written behind the
// requests.
func VerifySoon(dir, anchor string) (Summary, error) {
	found, err := Verify(dir, anchor)
	for range 20 {
		if !errors.Is(err, errBehind) {
			break
		}
		time.Sleep(every)
		found, err = Verify(dir, anchor)
	}
	return found, err
}

func verify(dir, anchor string) (Summary, error) {
	w := &walker{want: anchor}
	if err := through(dir, w.step); err != nil {
		return w.sum, err
	}
	if w.want != "" && !w.seen {
		return w.sum, broken("%w", errBehind)
	}
	return w.sum, nil
}

func broken(format string, args ...any) error {
	return reason.New(reason.AuditBroken, "the audit log does not hold: "+format, args...)
}

func (w *walker) step(raw []byte) error {
	l, err := readLine(raw)
	switch {
	case err != nil:
		return err
	case w.sum.Lines > 0 && l.Seq != w.sum.Last+1:
		return fmt.Errorf("it has number %d after %d", l.Seq, w.sum.Last)
	case w.sum.Lines > 0 && l.Prev != w.sum.Head:
		return errors.New("it does not hold the sum of the line before")
	case w.sum.Lines == 0:
		// Older ones were ended, unless it says that it is the first.
		if first := l.Prev == (sum{}).String(); first != (l.Seq == 1) {
			return errors.New("it says that it is the first and has another's number, or the reverse")
		}
		w.sum.First = l.Seq
	}
	w.sum.Lines++
	w.sum.Lost += l.Lost
	w.sum.Last, w.sum.Head = l.Seq, sum(sha256.Sum256(raw)).String()
	w.seen = w.seen || w.sum.Head == w.want
	return nil
}

// through reads the files, oldest first. A last line without an end is one
// that is being written.
func through(dir string, step func(raw []byte) error) error {
	path := filepath.Join(dir, Name)
	for i := keep; i >= 0; i-- {
		name := path
		if i > 0 {
			name = fmt.Sprint(path, ".", i)
		}
		f, err := openPrivate(name, unix.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = eachLine(f, step)
		f.Close()
		if err != nil {
			return broken("%s, %w", filepath.Base(name), err)
		}
	}
	return nil
}

func eachLine(r io.Reader, step func(raw []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine+1)
	lines.Split(wholeLines)
	n := 0
	for lines.Scan() {
		n++
		if err := step(lines.Bytes()); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w", n+1, err)
	}
	return nil
}

// wholeLines leaves out what has no newline, and takes nothing else off.
func wholeLines(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}
