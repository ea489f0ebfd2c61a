package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// diagnosis is what we read of `botbox doctor --json`.
type diagnosis struct {
	Able   bool
	Reason string
	Why    string
	Fix    []string
	Layers []struct{ Layer, Verdict string }
	Next   string
}

func diagnosisOf(t *testing.T, out rig.Output) (d diagnosis) {
	t.Helper()
	if err := json.Unmarshal([]byte(out.Stdout), &d); err != nil {
		t.Fatalf("%v in %+v", err, out)
	}
	return d
}

// fails gives the layer that does not hold, and wants none tried after it.
func (d diagnosis) fails(t *testing.T) string {
	t.Helper()
	missing := ""
	for _, l := range d.Layers {
		switch {
		case l.Verdict == "fails" && missing == "":
			missing = l.Layer
		case l.Verdict == "holds" && missing == "":
		case l.Verdict == "not-tried" && missing != "":
		default:
			t.Errorf("%s %s after %q", l.Layer, l.Verdict, missing)
		}
	}
	return missing
}

// What other tools for this job took for the cause because bubblewrap said so,
// in words that change with its version: here the layer decides.
func TestBubblewrapsWordsAreNotRead(t *testing.T) {
	p := newPlace(t)
	const answers = `case $1 in --version) echo "bubblewrap 0.12.0"; exit;; --help) exec /usr/bin/bwrap --help;; esac; `
	on := func(option, says string) string {
		return answers + `case "$*" in *` + option + `*) echo "bwrap: ` + says + `" >&2; exit 1;; esac`
	}
	for name, c := range map[string]struct{ script, code, layer string }{
		"sandbox-runtime#74":  {on("--unshare-net", "loopback: Failed RTM_NEWADDR: Operation not permitted"), "net-refused", "a network namespace with a loopback"},
		"ai-jail#34":          {on("--unshare-user", "setting up uid map: Permission denied"), "userns-refused", "a user namespace with mounts of its own"},
		"codex#23468":         {on("--unshare-user", "Failed to make / slave: Permission denied"), "userns-refused", "a user namespace with mounts of its own"},
		"sandbox-runtime#214": {on("--proc", "Can't mount proc on /newroot/proc: Operation not permitted"), "proc-masked", "a /proc of its own"},
		"codex#44304":         {on("--proc", "Can't mount proc on /proc: Operation not permitted"), "proc-masked", "a /proc of its own"},
		"another's words":     {on("--unshare-net", "Can't mount proc on /newroot/proc"), "net-refused", "a network namespace with a loopback"},
		"no filters":          {on("--seccomp", "prctl(PR_SET_SECCOMP): Invalid argument"), "box-failed", "a system-call filter"},
		"codex#15260":         {strings.Replace(answers, "exec /usr/bin/bwrap --help", "/usr/bin/bwrap --help | grep -v -e --size", 1), "bwrap-too-old", "its version and options"},
		"not this processor":  {"", "bwrap-not-runnable", "its version and options"},
	} {
		t.Run(name, func(t *testing.T) {
			path := p.path(c.script)
			out := rig.Run(t, p.botbox([]string{"PATH=" + path}, "doctor", "--json"))
			d := diagnosisOf(t, out)
			if out.Code != 125 || d.Able || d.Reason != c.code || d.fails(t) != c.layer || len(d.Fix) == 0 || d.Next != "botbox doctor" {
				t.Errorf("%+v, want %s at %q", out, c.code, c.layer)
			}
			run := rig.Run(t, p.botbox([]string{"PATH=" + path}, "run", "--standalone", "--", "/bin/sh", "-c", "echo ran"))
			if run.Code != 125 || run.Stdout != "" || !strings.Contains(run.Stderr, "reason: "+c.code+"\n") {
				t.Errorf("run: %+v, want %s", run, c.code)
			}
		})
	}
}

// path gives a PATH with a bubblewrap that is this script; an empty one is a
// program for another processor.
func (p *place) path(script string) string {
	p.t.Helper()
	dir, err := os.MkdirTemp(p.top, "bin")
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	rig.Give(p.t, dir)
	if script == "" {
		script = "\x7fELF"
	} else {
		script = "#!/bin/sh\n" + script + "\n"
	}
	rig.Write(p.t, filepath.Join(dir, "bwrap"), script)
	return dir
}

// A bubblewrap that is there and may not be run is not "not found"
// (Reasonix#8370); one further on in PATH is taken, as a shell would.
func TestABubblewrapThatMayNotBeRun(t *testing.T) {
	p := newPlace(t)
	closed := p.path("exit 0")
	if err := os.Chmod(filepath.Join(closed, "bwrap"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := rig.Run(t, p.botbox([]string{"PATH=" + closed}, "doctor"))
	if out.Code != 125 || !strings.Contains(out.Stdout, "reason: bwrap-not-runnable") || !strings.Contains(out.Stdout, closed) {
		t.Errorf("%+v", out)
	}
	out = rig.Run(t, p.botbox([]string{"PATH=" + closed + ":/usr/bin"}, "doctor"))
	if out.Code != 0 || !strings.Contains(out.Stdout, "this machine can box") || !strings.Contains(out.Stdout, "next: botbox check") {
		t.Errorf("positive control: %+v", out)
	}
}

// under runs doctor, and then a box, as the account under a command that takes
// something away.
func (p *place) under(before ...string) (doctor, run rig.Output) {
	p.t.Helper()
	each := func(args ...string) rig.Output {
		cmd := p.botbox(nil, args...)
		cmd.Args = append(append([]string{}, before...), append([]string{cmd.Path}, cmd.Args[1:]...)...)
		cmd.Path = before[0]
		return rig.Run(p.t, cmd)
	}
	return each("doctor", "--json"), each("run", "--standalone", "--", "sh", "-c", "echo ran")
}

// A container's profile, or a service's RestrictNamespaces, is a filter of
// system calls. It is told from a kernel that refuses by what the kernel
// itself could not have answered.
func TestAFilterThatRefusesNamespaces(t *testing.T) {
	p := newPlace(t)
	refuser := filepath.Join(p.top, "refuser")
	if err := rig.Compile(refuser, "./testbed/refuser", "rig"); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"namespaces", "mount"} {
		doctor, run := p.under(refuser, what)
		d := diagnosisOf(t, doctor)
		if doctor.Code != 125 || d.Reason != "userns-seccomp" || d.fails(t) != "a user namespace with mounts of its own" {
			t.Errorf("%s: %+v", what, doctor)
		}
		if run.Code != 125 || run.Stdout != "" || !strings.Contains(run.Stderr, "reason: userns-seccomp\n") {
			t.Errorf("%s: %+v", what, run)
		}
	}
	// Podman's and Docker's filters for whoever lacks CAP_SYS_ADMIN: a box is a
	// box without a name of its own, which its answer and the report say.
	doctor, run := p.under(refuser, "hostname")
	if doctor.Code != 0 || run.Code != 0 || run.Stdout != "ran\n" {
		t.Errorf("hostname: %+v, %+v", doctor, run)
	}
	name := func(before ...string) (string, bool) {
		cmd := p.botbox(nil, "run", "--standalone", "--json", "--", "uname", "-n")
		cmd.Args = append(append([]string{}, before...), append([]string{cmd.Path}, cmd.Args[1:]...)...)
		cmd.Path = before[0]
		out := rig.Run(t, cmd)
		return strings.TrimSpace(out.Stdout), strings.Contains(out.Stderr, "host name: a filter around us refuses another")
	}
	here, _ := os.Hostname()
	if is, warned := name(refuser, "hostname"); is != here || !warned {
		t.Errorf("hostname: %q, warned %t", is, warned)
	}
	if is, warned := name("/usr/bin/env"); is != "botbox" || warned {
		t.Errorf("positive control, no filter: %q, warned %t", is, warned)
	}
	if doctor, run := p.under("/usr/bin/env"); doctor.Code != 0 || run.Stdout != "ran\n" {
		t.Errorf("positive control, no filter: %+v, %+v", doctor, run)
	}
}

// A limit of zero, written in a user namespace that the test made.
func TestNoNamespaceIsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, to make a user namespace with two users in it")
	}
	p := newPlace(t)
	u := rig.Account(t)
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	doctor := func(limit, value string) rig.Output {
		script := `echo ` + value + ` >/proc/sys/user/` + limit + ` && exec setpriv --reuid ` + u.Uid + ` --regid ` + u.Gid + ` --clear-groups "$@"`
		cmd := p.botbox(nil, "doctor", "--json")
		cmd.Args = append([]string{"sh", "-c", script, "sh", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:                 syscall.CLONE_NEWUSER,
			UidMappings:                []syscall.SysProcIDMap{{Size: 1}, {ContainerID: uid, HostID: uid, Size: 1}},
			GidMappings:                []syscall.SysProcIDMap{{Size: 1}, {ContainerID: gid, HostID: gid, Size: 1}},
			GidMappingsEnableSetgroups: true,
		}
		return rig.Run(t, cmd)
	}
	for limit, layer := range map[string]string{
		"max_user_namespaces": "a user namespace with mounts of its own",
		"max_pid_namespaces":  "a /proc of its own",
		"max_net_namespaces":  "a network namespace with a loopback",
		"max_uts_namespaces":  "the remaining namespaces",
	} {
		out := doctor(limit, "0")
		d := diagnosisOf(t, out)
		if out.Code != 125 || d.Reason != "userns-limit" || !strings.Contains(d.Why, limit) || !strings.Contains(strings.Join(d.Fix, "\n"), limit) || d.fails(t) != layer {
			t.Errorf("%s: %+v", limit, out)
		}
	}
	if out := doctor("max_user_namespaces", "100"); out.Code != 0 {
		t.Errorf("positive control, a hundred are left: %+v", out)
	}
}

// Docker's masks are named, and the flag that takes them away.
func TestDoctorNamesTheMask(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, to mask /proc in a namespace of its own")
	}
	p := newPlace(t)
	script := `mount --make-rprivate / && mount -t tmpfs tmpfs /proc/sys/fs && cd ` + p.work + ` &&
		exec setpriv --reuid maus --regid maus --clear-groups ` + filepath.Join(p.bin, "botbox") + ` doctor --json`
	cmd := exec.Command("unshare", "-pfm", "--mount-proc", "--kill-child", "sh", "-c", script)
	cmd.Env = p.env
	out := rig.Run(t, cmd)
	d := diagnosisOf(t, out)
	if out.Code != 125 || d.Reason != "proc-masked" || !strings.Contains(d.Why, "/proc/sys/fs is covered") || d.fails(t) != "a /proc of its own" {
		t.Errorf("%+v", out)
	}
}

// Hidden processes of others hinder no box, and none is left hanging
// (bubblewrap#198).
func TestHiddenProcesses(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, to mount a /proc in a namespace of its own")
	}
	p := newPlace(t)
	script := `mount -o remount,hidepid=invisible /proc && cd ` + p.work + ` || exit 9
		as_maus() { setpriv --reuid maus --regid maus --clear-groups "$@"; }
		as_maus sh -c '[ ! -e /proc/1 ] && echo hidden'
		as_maus ` + filepath.Join(p.bin, "botbox") + ` run --standalone -- sh -c 'echo ran; ls -d /proc/[0-9]*; [ -e /proc/1 ] && echo own'
		for wait in 1 2 3 4 5 6 7 8 9 10; do # a dead one that nobody has waited for is not left hanging
			left=$(cat /proc/[0-9]*/stat 2>/dev/null | awk '$2 == "(bwrap)" && $3 != "Z"')
			[ -z "$left" ] && break || sleep 0.2
		done
		echo "left: $left"`
	cmd := exec.Command("unshare", "-pfm", "--mount-proc", "--kill-child", "sh", "-c", script)
	cmd.Env = p.env
	out := rig.Run(t, cmd)
	if out.Code != 0 || !strings.HasPrefix(out.Stdout, "hidden\nran\n/proc/1\n") || !strings.HasSuffix(out.Stdout, "own\nleft: \n") {
		t.Errorf("%+v", out)
	}
}

// Root in a container lacks capabilities that make bubblewrap fail when it
// runs as root (sandbox-runtime#180 and its README). A box is never root's.
func TestRootWithoutCapabilities(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, to be without some of its capabilities")
	}
	p := newPlace(t)
	for _, missing := range []string{"-sys_admin", "-setfcap", "-net_admin", "-sys_admin,-setfcap,-net_admin,-sys_ptrace,-sys_chroot"} {
		cmd := p.botbox(nil, "run", "--standalone", "--", "sh", "-c", "echo ran")
		cmd.Args = append([]string{"setpriv", "--bounding-set", missing, cmd.Path}, cmd.Args[1:]...)
		cmd.Path, cmd.SysProcAttr = "/usr/bin/setpriv", nil
		if out := rig.Run(t, cmd); out.Stdout != "ran\n" {
			t.Errorf("%s: %+v", missing, out)
		}
	}
}

// No tool beside bubblewrap is needed (claude-code#34044), and no folder for
// temporary files (claude-code#11079).
func TestNothingElseIsNeeded(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		dir := filepath.Join(p.top, "only")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/usr/bin/bwrap", filepath.Join(dir, "bwrap")); err != nil {
			t.Fatal(err)
		}
		out := rig.Run(t, p.botbox([]string{"PATH=" + dir, "TMPDIR=/nonexistent"}, with(run, "--", "/bin/sh", "-c", "echo $PATH $TMPDIR")...))
		if out.Code != 0 || out.Stdout != dir+" /tmp\n" {
			t.Errorf("%+v", out)
		}
	})
}

// A Local VM is reached through the container runtime's socket. Its turn is
// refused before anything is looked for or started, with the ways out.
func TestALocalVMIsRefused(t *testing.T) {
	p := newPlace(t)
	spec := `{"argv":["true"],"cwd":"` + p.work + `","local_vm":true}`
	without := p.botbox([]string{"PATH=/nonexistent"}, "run", "--standalone", "--spec", "-")
	without.Stdin = strings.NewReader(spec)
	out := rig.Run(t, without)
	if out.Code != 100 || out.Stdout != "" || !strings.HasSuffix(out.Stderr, "reason: local_vm_refused\n") {
		t.Errorf("where there is no bubblewrap: %+v", out)
	}
	for _, way := range []string{"use this computer", "or a Cloud computer", "or turn the box off for Local VM work"} {
		if !strings.Contains(out.Stderr, way) {
			t.Errorf("it does not say %q: %s", way, out.Stderr)
		}
	}
	p.serve()
	answer := p.lease([]byte(spec))
	fault, _ := answer["error"].(map[string]any)
	if fault["code"] != "local_vm_refused" || len(p.leased) != 0 {
		t.Errorf("%v with %d files", answer, len(p.leased))
	}
	if report := rig.Run(t, p.botbox(nil, "report", "--json")).Stdout; !strings.Contains(report, `"boxed":0,"refused":1`) {
		t.Errorf("it is not counted: %s", report)
	}
}
