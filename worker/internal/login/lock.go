package login

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Claude Code keeps others from renewing by a folder beside its own, whose time
// it renews; one that is older than lockStale was left behind.
const (
	lockStale = 10 * time.Second
	lockTouch = 3 * time.Second
	lockPoll  = 50 * time.Millisecond
)

var errLocked = errors.New("somebody else is renewing the sign-in")

// lock takes it, or gives up after a while.
func lock(dir string, within time.Duration) (release func(), err error) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	path := dir + ".lock"
	for end := time.Now().Add(within); ; time.Sleep(lockPoll) {
		if err = os.Mkdir(path, 0o700); err == nil {
			return held(path), nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > lockStale {
			os.Remove(path) // only an empty folder: nothing of anybody's is lost
			continue
		}
		if time.Now().After(end) {
			return nil, errLocked
		}
	}
}

func held(path string) (release func()) {
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(lockTouch):
				os.Chtimes(path, time.Now(), time.Now())
			}
		}
	}()
	return func() {
		close(stop)
		<-done
		os.Remove(path)
	}
}
