package selfcheck

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// fullControls are those of the full profile.
var fullControls = []control{
	{"F10", both, "the folders can be written", func(e *evidence) error {
		return errors.Join(unix.Access(filepath.Dir(e.TmpFile), unix.W_OK), unix.Access(filepath.Dir(e.VarTmpFile), unix.W_OK))
	}},
	{"F29", both, "the file in /dev/shm can be read outside", func(e *evidence) error { return e.holdsMarker(e.ShmFile) }},
	{"F12", both, "the two files are there", func(e *evidence) (failed error) {
		for _, path := range e.CPUFiles {
			_, err := os.ReadFile(path)
			failed = errors.Join(failed, err)
		}
		return failed
	}},
	{"F13", both, "what stands in for /.fly can be read outside", func(e *evidence) error { return e.holdsMarker(e.at("fly/api")) }},
	{"F14", both, "the file of HOME can be read outside", func(e *evidence) error { return e.holdsMarker(e.HomeFile) }},
	{"F16", both, "the service's socket answers outside", func(e *evidence) error { return e.service.knock() }},
	{"F23", after, "the path leads to another folder by now", (*evidence).exchanged},
	{"P02 P04", both, "the canary's command line can be read outside", func(e *evidence) error { return e.holdsMarker(e.canaryFile("cmdline")) }},
	{"P08", both, "the segment of shared memory is there outside", (*evidence).sharedMemory},
	{"P11", both, "the box was started from a terminal", (*evidence).hasTerminal},
	{"E02 E05 E06", before, "the names were in the environment that the box was asked with", (*evidence).namesDropped},
}

func (e *evidence) exchanged() error {
	text, err := os.ReadFile(filepath.Join(e.Swapped, "which"))
	if err == nil && !strings.HasPrefix(string(text), "another ") {
		err = errors.New("it does not")
	}
	return err
}

// hasTerminal asks for its settings, which only a terminal has.
func (e *evidence) hasTerminal() error {
	if e.terminal[1] == nil {
		return errors.New("there is none")
	}
	_, err := unix.IoctlGetTermios(int(e.terminal[1].Fd()), unix.TCGETS)
	return err
}
