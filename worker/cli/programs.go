package cli

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// libexec is where a package puts the programs that nobody types.
const libexec = "/usr/libexec/botbox"

// program is one of our own, opened while we still may: the folder that it is
// in may be closed to the user that boxes run as.
func program(name string) (*os.File, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, reason.New(reason.System, "find out where this program is: %w", err)
	}
	for _, dir := range []string{filepath.Dir(self), libexec} {
		path := filepath.Join(dir, name)
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), path), nil
		}
	}
	return nil, reason.New(reason.MissingProgram, "%s is neither beside %s nor in %s", name, self, libexec)
}
