package login

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

// maxFile is far above what any sign-in takes.
const maxFile = 1 << 20

// folder is the one that holds a sign-in. It is held open: whoever exchanges a
// folder above it for a link leads us nowhere.
type folder struct {
	*os.Root
	name string // of the file in it
}

func openFolder(home string, k kind) (*folder, error) {
	above, err := os.OpenRoot(home)
	if err != nil {
		return nil, err
	}
	defer above.Close()
	if info, err := above.Lstat(k.dir); err != nil || !info.IsDir() {
		return nil, errors.Join(err, fmt.Errorf("%s is no folder in HOME", k.dir))
	}
	dir, err := above.OpenRoot(k.dir)
	if err != nil {
		return nil, err
	}
	return &folder{dir, k.file}, nil
}

// stamp tells two states of the file apart.
type stamp struct {
	mtime time.Time
	size  int64
	inode uint64
}

func (f *folder) stamp() (stamp, error) {
	info, err := f.Lstat(f.name)
	if err != nil {
		return stamp{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || int(st.Uid) != os.Geteuid() || info.Size() > maxFile {
		return stamp{}, fs.ErrPermission
	}
	return stamp{info.ModTime(), info.Size(), st.Ino}, nil
}

func (f *folder) read() ([]byte, error) {
	file, err := f.OpenFile(f.name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFile+1))
}

// flock keeps other processes of ours out of a renewal.
func (f *folder) flock(within time.Duration) (unlock func(), err error) {
	dir, err := f.Open(".")
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(within); ; time.Sleep(lockPoll) {
		err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { dir.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || !time.Now().Before(end) {
			dir.Close()
			return nil, err
		}
	}
}

// adoptDrafts looks for what a process of ours left that ended in the middle of
// a renewal. A draft with a newer sign-in than the file's takes its place: its
// refresh token is the only one that still works. The caller has the flock, so
// nobody is at work on one.
func (l *Login) adoptDrafts() {
	dir, err := l.folder.Open(".")
	if err != nil {
		return
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), l.folder.name+draftMark) || !e.Type().IsRegular() {
			continue
		}
		b, err := (&folder{l.folder.Root, e.Name()}).read()
		_, drafted, perr := l.parse(bytes.TrimRight(b, "\x00"))
		current, _ := l.folder.read()
		_, filed, ferr := l.parse(current)
		if err == nil && perr == nil && ferr == nil && !drafted.same(filed) && drafted.expires.After(filed.expires) {
			l.adopt(e.Name(), bytes.TrimRight(b, "\x00"))
			continue
		}
		l.folder.Remove(e.Name())
	}
}

func (l *Login) adopt(name string, content []byte) {
	if d, err := l.folder.draft(); err == nil && d.commit(content) == nil {
		l.folder.Remove(name)
	}
}

const draftMark = ".botbox."

// draft is a file beside the sign-in's that will take its place. It is made,
// with room in it, before the issuer is asked: a full disk or a read-only one
// must not cost a refresh token.
type draft struct {
	f    *folder
	file *os.File
	name string
}

// room is what an answer can add to the file.
const room = 32 << 10

func (f *folder) draft() (*draft, error) {
	name := fmt.Sprintf("%s%s%d.%d", f.name, draftMark, os.Getpid(), time.Now().UnixNano())
	file, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	d := &draft{f, file, name}
	size := int64(room)
	if info, err := f.Lstat(f.name); err == nil {
		size += min(info.Size(), maxFile)
	}
	if _, err = file.Write(make([]byte, size)); err == nil {
		err = file.Sync()
	}
	if err != nil {
		d.drop()
		return nil, err
	}
	return d, nil
}

func (d *draft) drop() {
	d.file.Close()
	d.f.Remove(d.name)
}

// commit makes the draft the file, on the disk before it returns.
func (d *draft) commit(content []byte) error {
	defer d.drop() // after a rename there is nothing of that name
	if _, err := d.file.WriteAt(content, 0); err != nil {
		return err
	}
	if err := d.file.Truncate(int64(len(content))); err != nil {
		return err
	}
	if err := d.file.Sync(); err != nil {
		return err
	}
	if err := d.f.Rename(d.name, d.f.name); err != nil {
		return err
	}
	dir, err := d.f.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
