package harden

import (
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// place is a cgroup of version 2.
type place struct {
	dir string // its folder
	top bool   // the highest that can be seen from here
}

// ownCgroup finds our own.
func ownCgroup() (place, bool) {
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	mounts, err2 := os.ReadFile("/proc/self/mountinfo")
	if errors.Join(err, err2) != nil {
		return place{}, false
	}
	return findCgroup(string(cgroups), string(mounts))
}

// findCgroup reads /proc/self/cgroup and /proc/self/mountinfo:
//
//	0::/system.slice/botbox.service
//	30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw
func findCgroup(cgroups, mounts string) (place, bool) {
	var own string
	for line := range strings.Lines(cgroups) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			own = strings.TrimSuffix(rest, "\n")
		}
	}
	// One outside our cgroup namespace shows as /.. and more.
	if !strings.HasPrefix(own, "/") || path.Clean(own) != own || strings.HasPrefix(own+"/", "/../") {
		return place{}, false
	}
	for line := range strings.Lines(mounts) {
		left, right, _ := strings.Cut(line, " - ")
		l := strings.Fields(left)
		if len(l) < 6 || !strings.HasPrefix(right, "cgroup2 ") {
			continue
		}
		root := strings.TrimSuffix(unescape(l[3]), "/")
		if below, ok := strings.CutPrefix(own, root); ok && (below == "" || below[0] == '/') {
			return place{dir: path.Join(unescape(l[4]), below), top: below == "" || below == "/"}, true
		}
	}
	return place{}, false
}

// words reads a file of the cgroup. One that cannot be read has none.
func (at place) words(name string) []string {
	text, _ := os.ReadFile(at.dir + "/" + name)
	return strings.Fields(string(text))
}

// write makes no file: one that is not there is one that this kernel lacks.
func (at place) write(name, value string) error {
	f, err := os.OpenFile(at.dir+"/"+name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// delegated tells whether systemd gave this cgroup away (Delegate=yes). It says
// so in an extended attribute, by the one name or by the other.
func delegated(dir string) bool {
	var value [4]byte
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		if n, err := unix.Lgetxattr(dir, name, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}
