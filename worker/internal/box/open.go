package box

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// openSources opens every folder and file that enters the box, once. What is
// bound later is what was opened here: a path that is exchanged in between
// changes nothing. It gives the files by destination, and where the nested
// mounts have to stand.
func openSources(p *Plan) (files map[string]*os.File, feet []footing, err error) {
	files = map[string]*os.File{}
	defer func() {
		if err != nil {
			closeAll(files)
		}
	}()
	for _, m := range p.Mounts {
		if m.Kind == Bind || m.Kind == ROBind {
			f, err := openSource(m)
			if err != nil {
				return files, nil, err
			}
			files[m.Dest] = f
			if p.User != nil && (m.Program == nil || m.Program.Copy == nil) {
				if m.Program != nil {
					m.Source = m.Program.Name()
				}
				if err := p.User.checkReach(m, f); err != nil {
					return files, nil, err
				}
			}
		}
		if m.Nested {
			f, err := p.footing(m, files)
			if err != nil {
				return files, nil, err
			}
			feet = append(feet, f)
		}
	}
	return files, feet, nil
}

func closeAll(files map[string]*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func openSource(m Mount) (*os.File, error) {
	if m.Program != nil {
		return m.Program.open()
	}
	resolve := uint64(unix.RESOLVE_NO_SYMLINKS)
	if m.Careless.Unchecked {
		resolve = 0
	}
	fd, err := openat2(m.Source, unix.O_PATH|unix.O_CLOEXEC, resolve)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, reason.New(reason.PathRefused, "%s may not enter the box: there is a symbolic link on the way; name the place that it leads to", m.Source)
	case errors.Is(err, unix.ENOENT):
		return nil, reason.New(cmp.Or(m.Absent, reason.PathRefused), "%s cannot enter the box: it does not exist", m.Source)
	case Exhausted(err):
		return nil, reason.New(reason.System, "open %s: %w", m.Source, err)
	case err != nil:
		return nil, reason.New(reason.PathRefused, "%s cannot enter the box: %w", m.Source, err)
	}
	f := os.NewFile(uintptr(fd), m.Source)
	if err := checkSource(f, m); err != nil && !m.Careless.Unchecked {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Exhausted tells an error that says nothing of what was asked for: this
// process or the machine has no more files, or no memory.
func Exhausted(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

func openat2(path string, flags, resolve uint64) (int, error) {
	for {
		fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: flags, Resolve: resolve})
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// checkSource lets folders and plain files in. A socket reaches whatever
// listens on it, read-only or not, and a FIFO or device hangs or worse.
func checkSource(f *os.File, m Mount) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return reason.New(reason.System, "look at %s: %w", m.Source, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		if m.Sockets != 0 {
			return checkSockets(f, m)
		}
		return nil
	case unix.S_IFSOCK:
		return reason.New(reason.PathRefused, "%s may not enter the box: it is a socket", m.Source)
	}
	return reason.New(reason.PathRefused, "%s may not enter the box: it is neither a folder nor a plain file", m.Source)
}

// CheckWorkFolder tells whether the calling user can work in dir.
func CheckWorkFolder(dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return reason.New(reason.WorkFolder, "the work folder %s cannot be used: %w", dir, errors.Unwrap(err))
	}
	if !st.IsDir() {
		return reason.New(reason.WorkFolder, "the work folder %s is not a folder", dir)
	}
	if unix.Access(dir, unix.W_OK|unix.X_OK) != nil {
		return reason.New(reason.WorkFolder, "the user that boxes run as (uid %d) cannot write the work folder %s", os.Geteuid(), dir)
	}
	return nil
}

// Sealed makes a memfd that nobody can change any more.
func Sealed(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, reason.New(reason.System, "make the memory file %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := fillAndSeal(f, content); err != nil {
		f.Close()
		return nil, reason.New(reason.System, "fill the memory file %s: %w", name, err)
	}
	return f, nil
}

func fillAndSeal(f *os.File, content []byte) error {
	if _, err := f.Write(content); err != nil {
		return err
	}
	if _, err := f.Seek(0, 0); err != nil {
		return err
	}
	seals := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal it: %w", err)
	}
	return nil
}
