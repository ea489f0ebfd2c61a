package box

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/openmausbot/botbox/worker/internal/spec"
)

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
// server makes its data folder, an engine signs in, a package comes or goes.
func (m Machine) Again() Machine {
	m.DataDir = resolve(m.DataDir)
	_, err := os.Lstat(m.DataDir)
	m.DataExists = err == nil
	m.Logins = logins(m.Home)
	m.SSHFolders = lookAtSSH()
	m.Own = slices.Clone(m.Own)
	for i := range m.Own {
		m.Own[i] = lookAtFolder(m.Own[i].Path)
	}
	return m
}

// Hiding adds the worker's own folders to what no box sees.
func (m Machine) Hiding(own ...string) Machine {
	for _, path := range own {
		if path != "" {
			m.Own = append(m.Own, lookAtFolder(path))
		}
	}
	return m
}

func lookAtFolder(path string) Folder {
	path = resolve(path)
	_, err := os.Lstat(path)
	return Folder{path, err == nil}
}

// For looks at the machine for one spec; path is the PATH that the box will
// have.
func (m Machine) For(s spec.Spec, path string) Machine {
	m = m.Again()
	for _, folder := range putBacks(s) {
		if folder.field == "cwd" || folder.field == "paths.rw" {
			m.Repos = append(m.Repos, lookAtRepo(folder.path)...)
		}
	}
	m.Executable = lookAtExecutable(s.Argv, path)
	return m
}

// OwnedBy is the machine as the boxes of a user have it: without the sign-in folders
// of the account's that this user cannot write. It says which stay out.
func (m Machine) OwnedBy(u *User, engine string) (Machine, []string) {
	if u == nil {
		return m, nil
	}
	var stays []string
	m.Logins = slices.DeleteFunc(slices.Clone(m.Logins), func(dir string) bool {
		if u.Gives(filepath.Join(m.Home, dir)) {
			return false
		}
		if !slices.Contains(loginFolders[engine], dir) {
			return true
		}
		stays = append(stays, "the sign-in ~/"+dir+" stays out of boxes: it is not the bot's own user's")
		return true
	})
	return m, stays
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
