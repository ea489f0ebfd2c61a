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
	Limits     map[string]string // every limit, "soft hard"
	Namespaces map[string]string // user, pid, mnt, … → "kind:[inode]"
	Mounts     map[string]string // mount point → what is mounted there, and how
	Dumpable   bool              // a process of the same user may read its memory
}

// namespaces are all kinds that the kernels have which we run on.
func namespaces() []string {
	return []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"}
}

// Collect reads the posture of the process's main thread. Of another process
// than its own it tells Dumpable to root only.
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
	for _, ns := range namespaces() {
		if p.Namespaces[ns], err = os.Readlink(dir + "ns/" + ns); err != nil {
			return Posture{}, err
		}
	}
	text, err = os.ReadFile(dir + "mountinfo")
	if err != nil {
		return Posture{}, err
	}
	p.Mounts = parseMounts(string(text))
	p.Dumpable, err = dumpable(pid, p.Status)
	return p, err
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

// parseLimits reads the table, whose names fill 25 columns.
func parseLimits(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if len(line) < 26 || !strings.HasPrefix(line, "Max ") {
			continue
		}
		if f := strings.Fields(line[25:]); len(f) >= 2 {
			out[strings.TrimSpace(line[:25])] = f[0] + " " + f[1]
		}
	}
	return out
}

// parseMounts reads a mountinfo file. Its numbers differ by run: ids of mounts
// and devices are left out, and of shared:7 remains shared. What is mounted
// over another mount stands under the same name with an apostrophe.
func parseMounts(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		end := slices.Index(f, "-")
		if end < 6 || len(f) < end+4 {
			continue
		}
		at := f[4]
		for out[at] != "" {
			at += "'"
		}
		what := []string{f[end+1], f[end+2], f[3], f[5], f[end+3]}
		for _, optional := range f[6:end] {
			kind, _, _ := strings.Cut(optional, ":")
			what = append(what, kind)
		}
		out[at] = strings.Join(what, " ")
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
	add("dumpable", want.Dumpable, got.Dumpable)
	for _, m := range []struct {
		name      string
		want, got map[string]string
	}{{"fd", want.Fds, got.Fds}, {"limit", want.Limits, got.Limits}, {"namespace", want.Namespaces, got.Namespaces}, {"mount", want.Mounts, got.Mounts}} {
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
