package devtools

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/http1"
)

// File is Chrome's DevToolsActivePort: in a folder of the profile, which the box
// can write.
type File struct {
	Profile string // absolute, as it was let into the box
	Folder  string // Profile, or below it
}

const (
	fileName = "DevToolsActivePort"
	askEvery = 20 * time.Millisecond
	// announceWithin is longer than any daemon waits.
	announceWithin = 2 * time.Minute
	askWithin      = 5 * time.Second
	maxVersion     = 64 << 10
)

// announce waits until the browser answers, and writes its address.
func (p *Port) announce(way Way, file *File) {
	ctx, cancel := context.WithTimeout(p.ctx, announceWithin)
	defer cancel()
	for ctx.Err() == nil {
		if path, err := p.ask(ctx, way); err == nil {
			file.write(strconv.Itoa(p.Number) + "\n" + path)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(askEvery):
		}
	}
}

// ask gets the path of the browser's own socket from the browser.
func (p *Port) ask(ctx context.Context, way Way) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	c, release, err := way.Dial(ctx, gate.V4, uint16(p.Number))
	if err != nil {
		return "", err
	}
	defer release()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	head := "GET /json/version HTTP/1.1\r\nHost: 127.0.0.1:" + strconv.Itoa(p.Number) + "\r\nConnection: close\r\n\r\n"
	if _, err := c.Write([]byte(head)); err != nil {
		return "", err
	}
	answer, err := http1.ReadAnswer(c, "GET", maxVersion)
	if err != nil {
		return "", err
	}
	return socketPath(answer.Status, answer.Body)
}

var errVersion = errors.New("the browser's answer names no socket of its own")

// socketPath reads the path out of /json/version. A box may answer what it
// likes, so it is held to Chrome's own form.
func socketPath(status int, body []byte) (string, error) {
	var version struct {
		URL string `json:"webSocketDebuggerUrl"`
	}
	if status != 200 || json.Unmarshal(body, &version) != nil {
		return "", errVersion
	}
	const root = "/devtools/browser/"
	_, id, ok := strings.Cut(version.URL, root)
	if !ok || id == "" || len(id) > 64 || strings.Trim(id, "0123456789abcdefABCDEF-") != "" {
		return "", errVersion
	}
	return root + id, nil
}

// write puts the file in its place whole, as one that was not there before. No
// link that a box has planted is followed: not on the way, not at its end.
func (f *File) write(content string) error {
	dir, err := openFolder(unix.AT_FDCWD, f.Profile, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	below, err := filepath.Rel(f.Profile, f.Folder)
	if err != nil || !filepath.IsLocal(below) {
		return fs.ErrInvalid
	}
	if below != "." {
		sub, err := openFolder(dir, below, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_BENEATH)
		if err != nil {
			return err
		}
		defer unix.Close(sub)
		dir = sub
	}
	const draft = fileName + ".botbox"
	unix.Unlinkat(dir, draft, 0)
	fd, err := unix.Openat(dir, draft, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(content))
	if err = errors.Join(err, unix.Close(fd)); err == nil {
		err = unix.Renameat(dir, draft, dir, fileName)
	}
	if err != nil {
		unix.Unlinkat(dir, draft, 0)
	}
	return err
}

func openFolder(at int, path string, resolve uint64) (int, error) {
	return unix.Openat2(at, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve})
}
