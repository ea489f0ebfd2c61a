package posture

import (
	"maps"
	"os"
	"runtime"
	"strings"
	"testing"
)

const good = "Name:\tx\nUmask:\t0077\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t0 27 \nCapInh:\t0\nCapPrm:\t00000000000000e0\n" +
	"CapEff:\t00000000000000e0\nCapBnd:\t0\nCapAmb:\t0\nNoNewPrivs:\t1\nSeccomp:\t2\n"

func TestParseStatus(t *testing.T) {
	s, err := ParseStatus(good)
	if err != nil || s.UID != [4]int{1, 2, 3, 4} || len(s.Groups) != 2 || s.Permitted != 0xe0 || !s.NoNewPrivs || s.Seccomp != 2 || s.Umask != 0o77 {
		t.Errorf("%+v %v", s, err)
	}
	for _, field := range []string{"Umask", "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"} {
		if _, err := ParseStatus(strings.Replace(good, field+":", "X"+field+":", 1)); err == nil {
			t.Errorf("a status without %s is taken", field)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add(good)
	f.Fuzz(func(t *testing.T, text string) { ParseStatus(text) })
}

func TestEveryDifferenceShows(t *testing.T) {
	p, err := Collect(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if diff := Diff(p, p); diff != nil {
		t.Errorf("control: %v", diff)
	}
	for name, change := range map[string]func(*Posture){
		"uids": func(p *Posture) { p.UID[2]++ }, "gids": func(p *Posture) { p.GID[1]++ }, "groups": func(p *Posture) { p.Groups = append(p.Groups, 12345) },
		"CapInh": func(p *Posture) { p.Inheritable ^= 1 }, "CapPrm": func(p *Posture) { p.Permitted ^= 1 }, "CapEff": func(p *Posture) { p.Effective ^= 1 },
		"CapBnd": func(p *Posture) { p.Bounding ^= 1 }, "CapAmb": func(p *Posture) { p.Ambient ^= 1 }, "no_new_privs": func(p *Posture) { p.NoNewPrivs = !p.NoNewPrivs },
		"seccomp": func(p *Posture) { p.Seccomp++ }, "umask": func(p *Posture) { p.Umask ^= 7 },
		"fd 99":          func(p *Posture) { p.Fds = maps.Clone(p.Fds); p.Fds["99"] = "/leak" },
		"dumpable":       func(p *Posture) { p.Dumpable = !p.Dumpable },
		"mount /x":       func(p *Posture) { p.Mounts = maps.Clone(p.Mounts); p.Mounts["/x"] = "tmpfs t / rw rw" },
		"limit Max":      func(p *Posture) { p.Limits = map[string]string{} },
		"namespace user": func(p *Posture) { p.Namespaces = maps.Clone(p.Namespaces); p.Namespaces["user"] = "user:[1]" },
	} {
		q := p
		change(&q)
		if diff := strings.Join(Diff(p, q), "\n"); !strings.Contains(diff, name) {
			t.Errorf("%s does not show in %q", name, diff)
		}
	}
}

func TestThreadsSeesMoreThanOne(t *testing.T) {
	stop := make(chan bool)
	go func() { runtime.LockOSThread(); <-stop }()
	defer close(stop)
	for range 1000 {
		if all, err := Threads(os.Getpid()); err != nil {
			t.Fatal(err)
		} else if len(all) > 1 {
			return
		}
		runtime.Gosched()
	}
	t.Error("one thread only")
}
