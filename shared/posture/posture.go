package posture

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
)

// Posture is one process as the kernel shows it.
type Posture struct {
	Status
	Fds        map[string]string // fd → what it is: a path, or "pipe", "socket", …
	Limits     map[string]string // the limits of limits(), "soft hard"
	Namespaces map[string]string // user, pid, mnt, net, ipc, uts → "kind:[inode]"
}

// limits are those that hold a box or a worker; the others are left alone.
func limits() []string {
	return []string{"Max core file size", "Max processes", "Max open files", "Max address space", "Max file size"}
}

// Collect reads the posture of the process's main thread.
func Collect(pid int) (Posture, error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	text, err := os.ReadFile(dir + "status")
	if err != nil {
		return Posture{}, err
	}
	p := Posture{Namespaces: map[string]string{}}
	if p.Status, err = ParseStatus(string(text)); err != nil {
		return Posture{}, err
	}
	if p.Fds, err = fds(dir + "fd/"); err != nil {
		return Posture{}, err
	}
	text, err = os.ReadFile(dir + "limits")
	if err != nil {
		return Posture{}, err
	}
	p.Limits = parseLimits(string(text))
	for _, ns := range []string{"user", "pid", "mnt", "net", "ipc", "uts"} {
		if p.Namespaces[ns], err = os.Readlink(dir + "ns/" + ns); err != nil {
			return Posture{}, err
		}
	}
	return p, nil
}

// Threads reads the status of every thread: capabilities belong to threads,
// and the main thread's say nothing about the others'.
func Threads(pid int) ([]Status, error) {
	dir := fmt.Sprintf("/proc/%d/task/", pid)
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []Status
	for _, t := range tasks {
		text, err := os.ReadFile(dir + t.Name() + "/status")
		if err != nil {
			continue // the thread ended meanwhile
		}
		s, err := ParseStatus(string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("process %d shows no thread", pid)
	}
	return all, nil
}

// fds lists the open files. Inode numbers are cut off: they differ by run.
func fds(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	open := map[string]string{}
	for _, e := range entries {
		to, err := os.Readlink(dir + e.Name())
		if err != nil {
			continue // closed meanwhile, or the one that ReadDir used
		}
		if kind, _, ok := strings.Cut(to, ":["); ok {
			to = kind
		}
		open[e.Name()] = to
	}
	return open, nil
}

func parseLimits(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		for _, name := range limits() {
			if rest, ok := strings.CutPrefix(line, name); ok {
				if f := strings.Fields(rest); len(f) >= 2 {
					out[name] = f[0] + " " + f[1]
				}
			}
		}
	}
	return out
}

// Diff compares whole: one line "field: got … want …" a difference, sorted.
// A caller that accepts a field copies it from got into want, in plain sight.
func Diff(want, got Posture) []string {
	var lines []string
	add := func(field string, w, g any) {
		if !reflect.DeepEqual(w, g) {
			lines = append(lines, fmt.Sprintf("%s: got %v, want %v", field, g, w))
		}
	}
	lines = append(lines, DiffStatus(want.Status, got.Status)...)
	for _, m := range []struct {
		name      string
		want, got map[string]string
	}{{"fd", want.Fds, got.Fds}, {"limit", want.Limits, got.Limits}, {"namespace", want.Namespaces, got.Namespaces}} {
		for k := range m.got {
			add(m.name+" "+k, orNone(m.want, k), m.got[k])
		}
		for k := range m.want {
			if _, ok := m.got[k]; !ok {
				add(m.name+" "+k, m.want[k], "none")
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func orNone(m map[string]string, k string) string {
	if v, ok := m[k]; ok {
		return v
	}
	return "none"
}

// DiffStatus compares two threads' privileges, one line a difference.
func DiffStatus(want, got Status) []string {
	var lines []string
	add := func(field, w, g string) {
		if w != g {
			lines = append(lines, fmt.Sprintf("%s: got %s, want %s", field, g, w))
		}
	}
	add("uids", fmt.Sprint(want.UID), fmt.Sprint(got.UID))
	add("gids", fmt.Sprint(want.GID), fmt.Sprint(got.GID))
	add("groups", fmt.Sprint(want.Groups), fmt.Sprint(got.Groups))
	add("CapInh", fmt.Sprintf("%x", want.Inheritable), fmt.Sprintf("%x", got.Inheritable))
	add("CapPrm", fmt.Sprintf("%x", want.Permitted), fmt.Sprintf("%x", got.Permitted))
	add("CapEff", fmt.Sprintf("%x", want.Effective), fmt.Sprintf("%x", got.Effective))
	add("CapBnd", fmt.Sprintf("%x", want.Bounding), fmt.Sprintf("%x", got.Bounding))
	add("CapAmb", fmt.Sprintf("%x", want.Ambient), fmt.Sprintf("%x", got.Ambient))
	add("no_new_privs", fmt.Sprint(want.NoNewPrivs), fmt.Sprint(got.NoNewPrivs))
	add("seccomp", fmt.Sprint(want.Seccomp), fmt.Sprint(got.Seccomp))
	add("umask", fmt.Sprintf("%04o", want.Umask), fmt.Sprintf("%04o", got.Umask))
	return lines
}
