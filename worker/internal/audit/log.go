package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// Name is the newest file's name in the state folder.
const Name = "audit.log"

const (
	keep     = 8        // older files
	maxFile  = 16 << 20 // bytes of one of them
	maxAhead = 8 << 20  // lines that wait for the disk
	every    = 100 * time.Millisecond
)

// Log is the open chain. One process has it at a time; the worker's database,
// which is locked, lies beside it.
type Log struct {
	dir  string
	most int64 // maxFile, but in tests

	mu     sync.Mutex
	seq    uint64
	prev   sum
	ahead  []byte // whole lines that are not written yet
	lost   uint64
	closed bool

	writing sync.Mutex
	file    *os.File
	size    int64

	wake, stop, done chan struct{}
}

// Open goes on with the chain in dir, or begins it.
func Open(dir string) (*Log, error) {
	l := &Log{dir: dir, most: maxFile, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	torn, err := l.open()
	if err != nil {
		return nil, err
	}
	if err := l.resume(); err != nil {
		l.file.Close()
		return nil, err
	}
	l.Add(Entry{Time: time.Now(), Kind: "open", Torn: torn})
	go l.write()
	return l, nil
}

// openPrivate opens a plain file that is ours alone, following no link.
func openPrivate(path string, flags int) (*os.File, error) {
	fd, err := unix.Open(path, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, reason.New(reason.NotYours, "%s is a link", path)
	}
	if err != nil {
		return nil, reason.New(reason.System, "open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	// Root may read what is another's: it is who looks after the machine.
	if mine := int(st.Uid) == os.Geteuid() || os.Geteuid() == 0; err != nil || !mine || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o077 != 0 {
		f.Close()
		return nil, reason.New(reason.NotYours, "%s must be a file of yours with mode 0600", path)
	}
	return f, nil
}

// open opens the newest file and cuts an unfinished line off its end.
func (l *Log) open() (torn int, err error) {
	if l.file, err = openPrivate(filepath.Join(l.dir, Name), unix.O_RDWR|unix.O_CREAT|unix.O_APPEND); err != nil {
		return 0, err
	}
	end, err := l.file.Seek(0, io.SeekEnd)
	if err == nil {
		l.size, err = lastNewline(l.file, end)
	}
	if err == nil && l.size < end {
		err = l.file.Truncate(l.size)
	}
	if err != nil {
		l.file.Close()
		return 0, reason.New(reason.System, "read %s: %w", l.file.Name(), err)
	}
	return int(end - l.size), nil
}

// lastNewline gives the place behind the last newline before end.
func lastNewline(f io.ReaderAt, end int64) (int64, error) {
	buffer := make([]byte, 4096)
	for end > 0 {
		n := min(end, int64(len(buffer)))
		if _, err := f.ReadAt(buffer[:n], end-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buffer[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1, nil
		}
		end -= n
	}
	return 0, nil
}

// resume takes up the chain after the last line there is. A last line that is
// none of ours is not repaired: Verify has to find it.
func (l *Log) resume() error {
	raw, err := lastLine(l.file, l.size)
	if err == nil && raw == nil { // a file that has just been begun
		var older *os.File
		older, err = openPrivate(filepath.Join(l.dir, Name+".1"), unix.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			defer older.Close()
			var end int64
			if end, err = older.Seek(0, io.SeekEnd); err == nil {
				raw, err = lastLine(older, end)
			}
		}
	}
	if err != nil || raw == nil {
		return err
	}
	l.prev = sha256.Sum256(raw)
	if line, err := readLine(raw); err == nil {
		l.seq = line.Seq
	}
	return nil
}

// lastLine gives the line that ends at end, without its newline.
func lastLine(f io.ReaderAt, end int64) ([]byte, error) {
	if end == 0 {
		return nil, nil
	}
	start, err := lastNewline(f, end-1)
	if err != nil || end-1-start > maxLine {
		return nil, errors.Join(err, fmt.Errorf("the last line cannot be read"))
	}
	raw := make([]byte, end-1-start)
	_, err = f.ReadAt(raw, start)
	return raw, err
}

// Add puts an entry at the chain's end. The file has it within a moment.
func (l *Log) Add(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	e.Time = e.Time.UTC().Round(time.Microsecond)
	if len(l.ahead) > maxAhead {
		l.lost++
		return
	}
	e.Lost = l.lost
	raw, err := json.Marshal(Line{l.seq + 1, l.prev.String(), e})
	if err != nil || len(raw) > maxLine {
		l.lost++ // names of a box are short; nothing of ours is that long
		return
	}
	l.seq, l.prev, l.lost = l.seq+1, sha256.Sum256(raw), 0
	l.ahead = append(append(l.ahead, raw...), '\n')
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Head gives the newest line's number and sum.
func (l *Log) Head() (seq uint64, hash string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq, l.prev.String()
}

// write is the one goroutine that waits for the disk.
func (l *Log) write() {
	defer close(l.done)
	for {
		select {
		case <-l.wake:
		case <-l.stop:
			return
		}
		l.Flush()
		select { // lines come in swarms: one write for each of those
		case <-time.After(every):
		case <-l.stop:
			return
		}
	}
}

// Flush writes what waits.
func (l *Log) Flush() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	lines := l.ahead
	l.ahead = nil
	l.mu.Unlock()
	var err error
	for len(lines) > 0 && err == nil {
		if l.size >= l.most {
			err = l.rotate()
		}
		if err == nil {
			lines, err = l.fill(lines)
		}
	}
	if len(lines) > 0 { // wait for the next time
		l.mu.Lock()
		l.ahead = append(lines, l.ahead...)
		l.mu.Unlock()
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return err
}

// fill writes lines until the file is full, and gives what is left of them.
func (l *Log) fill(lines []byte) ([]byte, error) {
	room := max(l.most-l.size, 1)
	part := lines
	if int64(len(lines)) > room {
		part = lines[:room-1+int64(bytes.IndexByte(lines[room-1:], '\n'))+1]
	}
	n, err := l.file.Write(part)
	if n > 0 && n < len(part) { // half a line may stand there: it is written anew
		n = bytes.LastIndexByte(part[:n], '\n') + 1
		err = errors.Join(err, l.file.Truncate(l.size+int64(n)))
	}
	l.size += int64(n)
	return lines[n:], err
}

// rotate makes the full file the first of the older ones, and ends the oldest.
func (l *Log) rotate() error {
	path := filepath.Join(l.dir, Name)
	for i := keep; i > 1; i-- {
		err := os.Rename(fmt.Sprint(path, ".", i-1), fmt.Sprint(path, ".", i))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(path, path+".1"); err != nil {
		return err
	}
	f, err := openPrivate(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_APPEND)
	if err != nil {
		return err
	}
	l.file.Sync()
	l.file.Close()
	l.file, l.size = f, 0
	return nil
}

// Close writes what waits and ends the log.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	close(l.stop)
	<-l.done
	return errors.Join(l.Flush(), l.file.Sync(), l.file.Close())
}
