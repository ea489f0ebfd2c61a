package box

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/testbed/rig"
)

func TestMain(m *testing.M) {
	code := m.Run()
	rig.Remove()
	os.Exit(code)
}

// proc is a /proc that has these files only.
func proc(files ...string) fs.FS {
	fsys := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		fsys[files[i]] = &fstest.MapFile{Data: []byte(files[i+1] + "\n")}
	}
	return fsys
}

const (
	userStage = iota
	procStage
	netStage
	restStage
	filterStage
)

// kernelSays is how os/exec hands an error of the kernel's on.
func kernelSays(user, mount error) func(uintptr) error {
	return func(unshareflags uintptr) error {
		err := user
		if unshareflags != 0 {
			err = mount
		}
		if err == nil {
			return nil
		}
		return &fs.PathError{Op: "fork/exec", Path: "x", Err: err}
	}
}

func TestCause(t *testing.T) {
	const restricted, label = "sys/kernel/apparmor_restrict_unprivileged_userns", "self/attr/current"
	plain := "22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw\n30 22 0:30 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw"
	for name, c := range map[string]struct {
		proc     fs.FS
		stage    int
		filtered int // of the namespaces
		noMount  bool
		noPivot  bool
		user     error
		mount    error
		want     reason.Code
		says     string
	}{
		"Debian's switch":                  {proc: proc("sys/kernel/unprivileged_userns_clone", "0"), user: unix.EPERM, want: reason.UsernsSysctl},
		"the switch is on":                 {proc: proc("sys/kernel/unprivileged_userns_clone", "1"), user: unix.EPERM, want: reason.UsernsRefused},
		"no user namespaces":               {proc: proc("sys/user/max_user_namespaces", "0"), user: unix.ENOSPC, want: reason.UsernsLimit, says: "user.max_user_namespaces"},
		"no mount namespaces":              {proc: proc("sys/user/max_mnt_namespaces", "0"), want: reason.UsernsLimit, says: "user.max_mnt_namespaces"},
		"no net namespaces":                {proc: proc("sys/user/max_net_namespaces", "0"), stage: netStage, want: reason.UsernsLimit, says: "user.max_net_namespaces"},
		"no net namespaces, but user":      {proc: proc("sys/user/max_net_namespaces", "0"), user: unix.EPERM, want: reason.UsernsRefused},
		"a limit further out":              {proc: proc("sys/user/max_user_namespaces", "15000"), user: unix.ENOSPC, want: reason.UsernsLimit},
		"nested too deeply":                {proc: proc(), user: unix.EUSERS, want: reason.UsernsLimit},
		"docker's filter":                  {proc: proc(restricted, "1"), filtered: unix.CLONE_NEWUSER, user: unix.EPERM, want: reason.UsernsSeccomp},
		"docker's filter for SYS_ADMIN":    {proc: proc(), noPivot: true, want: reason.UsernsSeccomp, says: "pivot_root"},
		"a filter that lets clone through": {proc: proc(), noMount: true, mount: unix.EPERM, want: reason.UsernsSeccomp},
		"systemd's RestrictNamespaces":     {proc: proc(), stage: netStage, filtered: unix.CLONE_NEWNET, want: reason.UsernsSeccomp},
		"a switch before a filter":         {proc: proc("sys/kernel/unprivileged_userns_clone", "0"), filtered: unix.CLONE_NEWUSER, want: reason.UsernsSysctl},
		"Ubuntu":                           {proc: proc(restricted, "1", label, "unconfined"), mount: unix.EPERM, want: reason.UsernsLSM},
		"Ubuntu, at the loopback":          {proc: proc(restricted, "1"), stage: netStage, want: reason.UsernsLSM},
		"Ubuntu, at /proc":                 {proc: proc(restricted, "1", "self/mountinfo", plain), stage: procStage, want: reason.UsernsLSM},
		"Ubuntu, /proc masked":             {proc: proc(restricted, "1", "self/mountinfo", plain+"\n31 22 0:31 / /proc/acpi ro - tmpfs tmpfs ro"), stage: procStage, want: reason.ProcMasked, says: "/proc/acpi"},
		"a container on Ubuntu":            {proc: proc(restricted, "1", label, "docker-default (enforce)"), mount: unix.EACCES, want: reason.MountRefused},
		"not restricted":                   {proc: proc(restricted, "0"), user: unix.EACCES, want: reason.UsernsRefused, says: "permission denied"},
		"mounts refused":                   {proc: proc(), mount: unix.EACCES, want: reason.MountRefused},
		"only bubblewrap":                  {proc: proc(), want: reason.UsernsRefused, says: "no refusal of the kernel"},
		"no time left":                     {proc: proc(), user: context.DeadlineExceeded, mount: context.DeadlineExceeded, want: reason.UsernsRefused, says: "no refusal of the kernel"},
		"nothing masked":                   {proc: proc("self/mountinfo", plain), stage: procStage, want: reason.ProcMasked},
		"ProtectKernelTunables":            {proc: proc("self/mountinfo", plain+"\n31 22 0:21 /sys /proc/sys ro - proc proc rw"), stage: procStage, want: reason.ProcMasked, says: "/proc/sys is covered"},
		"ProcSubset":                       {proc: proc("self/mountinfo", "22 1 0:21 / /proc rw - proc proc rw,subset=pid"), stage: procStage, want: reason.ProcMasked, says: "subset=pid"},
		"read-only":                        {proc: proc("self/mountinfo", "22 1 0:21 / /proc ro,nosuid - proc proc rw"), stage: procStage, want: reason.ProcMasked, says: "read-only"},
		"no loopback":                      {proc: proc(), stage: netStage, want: reason.NetRefused},
		"the rest":                         {proc: proc(), stage: restStage, want: reason.BoxFailed},
		"no filters in this kernel":        {proc: proc(), stage: filterStage, want: reason.BoxFailed},
	} {
		m := machine{c.proc, func(flags int) bool { return flags&c.filtered != 0 }, func() bool { return c.noMount }, kernelSays(c.user, c.mount), func() bool { return c.noPivot }}
		e := reason.Of(m.cause(c.stage))
		if e.Code != c.want || !strings.Contains(e.Error()+reason.FaultOf(e).Hint, c.says) {
			t.Errorf("%s: %s (%v), want %s with %q", name, e.Code, e, c.want, c.says)
		}
	}
}

// Bubblewrap's own sandbox says what holds: a setting that looks bad is none
// while boxes stand. Ubuntu ships a profile that lets bubblewrap through, and
// the setting stays 1.
func TestNoCauseIsLookedForWhileBoxesStand(t *testing.T) {
	p := newTestProbe(t)
	p.machine = machine{} // every look at it would panic
	f := p.run("", true)
	if f.Err != nil {
		t.Fatal(f.Err)
	}
	if len(f.Layers) != 2+len(stages) {
		t.Errorf("%d layers", len(f.Layers))
	}
	for _, l := range f.Layers {
		if !l.Tried || !l.Holds || l.Took <= 0 {
			t.Errorf("%+v", l)
		}
	}
	// Positive control: it is looked at as soon as a box does not stand.
	defer func() {
		if recover() == nil {
			t.Error("a machine without a box was not looked at")
		}
	}()
	p = newTestProbe(t)
	p.machine = machine{}
	p.run(fakeBwrap(t, answers+"exit 1"), false)
}

// The kernel of this machine lets our own program make namespaces, and no
// filter is around it: what the probes must be able to tell.
func TestProbesWithoutBubblewrap(t *testing.T) {
	p := newTestProbe(t)
	for _, stage := range stages {
		if filtered(stage.flags) {
			t.Errorf("%s: filtered", stage.what)
		}
	}
	if mountFiltered() {
		t.Error("mount is filtered")
	}
	if err := errors.Join(p.clone(0), p.clone(unix.CLONE_NEWNS)); err != nil {
		t.Error(err)
	}
	b, err := os.ReadFile(p.entry.Name())
	if err != nil {
		t.Fatal(err)
	}
	p.entry.Copy = b
	if err := p.clone(unix.CLONE_NEWNS); err != nil {
		t.Errorf("from a copy: %v", err)
	}
}

// Two seconds are for everything together, whatever hangs.
func TestDetectionIsBounded(t *testing.T) {
	for name, script := range map[string]string{
		"the version": "exec sleep 60",
		"every box":   answers + "exec sleep 60",
		"two of them": `case $1 in --version) sleep 1.5; echo bubblewrap 0.11.0;; --help) sleep 1.5; exec /usr/bin/bwrap --help;; esac`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, path := newTestProbe(t), fakeBwrap(t, script)
			begin := time.Now()
			f := p.run(path, false)
			if took := time.Since(begin); took > probeTime+time.Second {
				t.Errorf("it took %v", took)
			}
			if code := reason.Of(f.Err).Code; code != reason.ProbeTimeout {
				t.Errorf("%v", f.Err)
			}
			if last := f.Layers[len(f.Layers)-1]; last.Tried {
				t.Errorf("tried after the time was over: %+v", last)
			}
		})
	}
}

// Somebody else may hold the output for a moment longer than bubblewrap lives: a
// process that is being forked does. That is no bubblewrap without a version.
func TestAnOutputThatStaysOpen(t *testing.T) {
	p := newTestProbe(t)
	p.deadline = time.Now().Add(20 * time.Second)
	for name, c := range map[string]struct {
		script string
		good   bool
	}{
		"control":           {answers, true},
		"for a moment":      {"[ $1 != --version ] || sleep 0.25 & " + answers, true},
		"longer than is ok": {"[ $1 != --version ] || sleep 4 & " + answers, false},
	} {
		begin := time.Now()
		version, err := p.version(filepath.Join(fakeBwrap(t, c.script), "bwrap"))
		if (err == nil && version == "0.11.0") != c.good || time.Since(begin) > 3*time.Second {
			t.Errorf("%s: %q %v after %v", name, version, err, time.Since(begin))
		}
	}
}

// answers makes a script say what version it is, and which options it has.
const answers = `case $1 in --version) echo bubblewrap 0.11.0; exit;; --help) exec /usr/bin/bwrap --help;; esac; `

func newTestProbe(t *testing.T) *probe {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil {
		rig.Missing(t, "bubblewrap")
	}
	entry, err := os.Open(filepath.Join(rig.Programs(t), "boxentry"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { entry.Close() })
	return NewSpawner().newProbe(Program{File: entry})
}

// fakeBwrap gives a PATH with a bubblewrap that is this script.
func fakeBwrap(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	for place := dir; place != os.TempDir(); place = filepath.Dir(place) {
		if err := os.Chmod(place, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bwrap"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
