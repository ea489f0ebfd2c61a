package box

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// openSources opens every folder and file that enters the box, once. What is
// bound later is what was opened here: a path that is exchanged in between
// changes nothing.
func openSources(p *Plan) (map[string]*os.File, error) {
	files := map[string]*os.File{}
	for _, m := range p.Mounts {
		if m.Kind == Tmpfs {
			if err := p.checkMask(m, files); err != nil {
				closeAll(files)
				return nil, err
			}
		}
		if m.Kind != Bind && m.Kind != ROBind {
			continue
		}
		f, err := openSource(m)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		files[m.Dest] = f
	}
	return files, nil
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
	fd, err := openat2(m.Source, unix.O_PATH|unix.O_CLOEXEC, unix.RESOLVE_NO_SYMLINKS)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, reason.New(reason.PathRefused, "%s may not enter the box: there is a symbolic link on the way; name the place that it leads to", m.Source)
	case errors.Is(err, unix.ENOENT):
		return nil, reason.New(cmp.Or(m.Absent, reason.PathRefused), "%s cannot enter the box: it does not exist", m.Source)
	case err != nil:
		return nil, reason.New(reason.PathRefused, "%s cannot enter the box: %w", m.Source, err)
	}
	f := os.NewFile(uintptr(fd), m.Source)
	if err := checkSource(f, m); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// checkMask looks at the one mount that lies in a folder which the box can
// write: the data folder's mask. Its mount point must be there, or bubblewrap
// would make it in the user's tree, and no link may be on the way to it.
func (p *Plan) checkMask(m Mount, files map[string]*os.File) error {
	above := p.above(m.Dest)
	if above == nil || above.Kind != Bind {
		return nil
	}
	rel, err := filepath.Rel(above.Dest, m.Dest)
	if err != nil {
		return reason.New(reason.Internal, "%s is not below %s", m.Dest, above.Dest)
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(int(files[above.Dest].Fd()), rel, &how)
	if err != nil {
		return reason.New(reason.PathRefused, "%s cannot be hidden in %s: %w", m.Dest, above.Source, err).
			WithHint("make the folder %s in it", rel)
	}
	return unix.Close(fd)
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
	case unix.S_IFDIR, unix.S_IFREG:
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

// LookAt gathers what a plan has to know of this machine.
func LookAt(user, home, dataDir string) Machine {
	m := Machine{User: user, Home: resolve(home), DataDir: resolve(dataDir), RootLinks: map[string]string{}}
	for _, row := range rootNames {
		if target, err := os.Readlink("/" + row.name); err == nil {
			m.RootLinks[row.name] = target
		} else if st, err := os.Lstat("/" + row.name); err == nil && st.IsDir() {
			m.RootDirs = append(m.RootDirs, row.name)
		}
	}
	for _, f := range cpuFiles {
		if st, err := os.Lstat(f); err == nil && st.Mode().IsRegular() {
			m.CPUFiles = append(m.CPUFiles, f)
		}
	}
	return m.Again()
}

// Again looks once more at what can have changed since the worker started: the
// server makes its data folder, an engine signs in.
func (m Machine) Again() Machine {
	m.DataDir = resolve(m.DataDir)
	_, err := os.Lstat(m.DataDir)
	m.DataExists = err == nil
	m.Logins = logins(m.Home)
	return m
}

// logins lists the login folders that are there: none is made for a box.
func logins(home string) []string {
	var there []string
	for _, dirs := range loginFolders {
		for _, dir := range dirs {
			if st, err := os.Lstat(filepath.Join(home, dir)); err == nil && st.IsDir() {
				there = append(there, dir)
			}
		}
	}
	return there
}

// resolve follows the links in a path as far as the path exists.
func resolve(path string) string {
	if path == "" {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	parent, name := filepath.Split(filepath.Clean(path))
	if parent == "" || name == "" {
		return path
	}
	return filepath.Join(resolve(filepath.Clean(parent)), name)
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
