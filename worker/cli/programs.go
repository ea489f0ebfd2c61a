package cli

import (
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
)

// libexec is where a package puts the programs that nobody types.
const libexec = "/usr/libexec/botbox"

// enter opens our own programs, as whoever called us, and then becomes the
// user that boxes run as.
func (c *call) enter(names ...string) (account, []box.Program, error) {
	var programs []box.Program
	for _, name := range names {
		f, err := openProgram(name)
		if err != nil {
			return account{}, nil, err
		}
		programs = append(programs, box.Program{File: f})
	}
	a, err := c.leaveRoot()
	if err != nil {
		return a, nil, err
	}
	for i := range programs {
		if err := bringAlong(&programs[i]); err != nil {
			return a, nil, err
		}
	}
	return a, programs, nil
}

func openProgram(name string) (*os.File, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, reason.New(reason.System, "find out where this program is: %w", err)
	}
	for _, dir := range []string{filepath.Dir(self), libexec} {
		path := filepath.Join(dir, name)
		for _, flags := range []int{unix.O_RDONLY, unix.O_PATH} { // one that can only be run is still ours
			fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
			if err == nil {
				return os.NewFile(uintptr(fd), path), nil
			}
			if box.Exhausted(err) {
				return nil, reason.New(reason.System, "open %s: %w", path, err)
			}
		}
	}
	return nil, reason.New(reason.MissingProgram, "%s is neither beside %s nor in %s", name, self, libexec)
}

// bringAlong reads a program whose folder is closed to the user that we have
// become: root's checkout, say.
func bringAlong(p *box.Program) error {
	if unix.Access(p.Name(), unix.X_OK) == nil {
		return nil
	}
	b, err := io.ReadAll(p)
	if err != nil || len(b) == 0 {
		return reason.New(reason.MissingProgram, "the user that boxes run as (uid %d) can neither reach nor read %s", os.Geteuid(), p.Name())
	}
	p.Copy = b
	return nil
}
