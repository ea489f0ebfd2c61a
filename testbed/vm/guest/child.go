package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// place is one way in which a machine has a cgroup for the supervisor, which is
// the child of another init here, as on a Fly machine.
type place struct {
	name  string
	group string // below the machine's tree; it is made
	// before prepares the group; inside is what a shell does in cgroup and
	// mount namespaces of their own before it becomes the supervisor.
	before func(dir string) error
	inside string
	vars   []string
	state  string // of the boot step cgroup
	says   string // what its evidence holds
}

const tree = "/sys/fs/cgroup"

// places are in this order because the machine's first cgroup can be shared
// out only while nobody else makes any.
var places = []place{
	{name: "machine", state: "done", says: "memory pids cpu shared out to /sys/fs/cgroup/botbox "},
	{name: "delegated", group: "unit", before: delegate, state: "done", says: "/sys/fs/cgroup/unit/botbox "},
	{name: "container", group: "container", inside: "umount /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup", state: "done", says: "memory pids cpu shared out to /sys/fs/cgroup/botbox "},
	{name: "read-only", group: "readonly", inside: "umount /sys/fs/cgroup; mount -t cgroup2 -o ro none /sys/fs/cgroup", state: "refused", says: "read-only file system"},
	{name: "not-delegated", group: "service", state: "absent", says: "not delegated"},
	{name: "shared", group: "crowd", before: crowd, state: "absent", says: "shared with process"},
	{name: "no-controllers", group: "service/inner", before: delegate, state: "absent", says: "none of the controllers"},
	{name: "others-rule", state: "absent", says: "somebody else makes cgroups"},
	{name: "no-cgroup2", inside: "umount /sys/fs/cgroup", group: "blind", state: "absent", says: "no cgroup of version 2"},
}

func delegate(dir string) error { return unix.Setxattr(dir, "user.delegate", []byte("1"), 0) }

// crowd puts a stranger in.
func crowd(dir string) error {
	stranger := &running{Cmd: exec.Command("sleep", "600")}
	return errors.Join(delegate(dir), stranger.startIn(dir))
}

func childCourse() {
	var rows []row
	for _, p := range places {
		rows = append(rows, row{"cgroup-" + p.name, func(*bed) (string, error) { return p.try() }})
	}
	rows = append(rows, row{"command-is-a-box", commandIsABox}, row{"strict-goes-on", strictGoesOn}, row{"container-runs-out", containerRunsOut},
		row{"bots-box-outlives-its-worker", botsBoxOutlives}, row{"no-vsock-ends-the-boot", noVsockEndsTheBoot})
	b := &bed{}
	b.all(rows)
	fmt.Println("DONE", b.made)
}

// start starts a supervisor in its place. Words follow its name.
func (p place) start(words ...string) (*running, *bed, error) {
	dir := filepath.Join(tree, p.group)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	// The machine's first cgroup shares its controllers out, as an init does.
	for _, c := range []string{"+memory", "+pids", "+cpu"} {
		if p.group == "" {
			break
		}
		if err := os.WriteFile(tree+"/cgroup.subtree_control", []byte(c), 0o644); err != nil {
			return nil, nil, err
		}
	}
	if p.before != nil {
		if err := p.before(dir); err != nil {
			return nil, nil, err
		}
	}
	b := &bed{run: "/run/" + p.name, group: dir}
	argv := append([]string{programs + "/botbox-supervisor"}, words...)
	if p.inside != "" {
		argv = append([]string{"unshare", "-C", "-m", "sh", "-c", p.inside + ` && exec "$@"`, "sh"}, argv...)
	}
	r := b.command("", argv...)
	r.SysProcAttr = nil
	r.Env = append(append([]string{"OMB_STATE_DIR=/var/lib/" + p.name}, r.Env...), p.vars...)
	return r, b, r.startIn(dir)
}

// try boots a supervisor there, looks at what it says of the step, and asks
// for a box with a limit: honoured in the one case, refused by name in the
// other.
func (p place) try() (string, error) {
	r, b, err := p.start()
	if err != nil {
		return "", err
	}
	defer r.kill()
	steps, err := b.steps()
	if err != nil {
		return r.err.String(), err
	}
	got := steps["cgroup"]
	if got.State != p.state || !strings.Contains(got.Evidence, p.says) {
		return fmt.Sprint(got), fmt.Errorf("not %s with %q", p.state, p.says)
	}
	caller := b.group
	if p.state == "done" {
		caller = b.part("botbox-worker")
	}
	out := b.in(caller, programs+"/botbox", "run", "--memory", "64M", "--json", "--", "echo", "ran")
	if p.state == "done" && (out.code != 0 || out.stdout != "ran\n" || !strings.Contains(out.stderr, `"memory":"cgroup"`)) {
		return out.String(), errors.New("a limit is not honoured")
	}
	if p.state != "done" && (out.code != 125 || out.stdout != "" || !strings.Contains(out.stderr, "reason: limits-unavailable")) {
		return out.String(), errors.New("a limit is not refused by name")
	}
	plain := b.in(caller, programs+"/botbox", "run", "--", "echo", "ran")
	if plain.code != 0 || plain.stdout != "ran\n" {
		return plain.String(), errors.New("no box without a limit")
	}
	begin := time.Now()
	r.Process.Signal(unix.SIGTERM)
	ended := r.end()
	if left, _ := filepath.Glob(b.part("box-*")); ended.code != 0 || len(left) > 0 || len(find(b.run)) > 0 {
		return ended.String(), fmt.Errorf("it did not stop well: %v left", left)
	}
	return fmt.Sprintf("%s: %s; stopped in %v", got.State, got.Evidence, time.Since(begin)), nil
}

func commandIsABox(*bed) (string, error) {
	r, _, err := place{name: "command", group: "command", before: delegate}.start("--", "sh", "-c", "id -un; ls /sys/fs/cgroup; exit 7")
	if err != nil {
		return "", err
	}
	if out := r.end(); out.code != 7 || out.stdout != "maus\n" {
		return out.String(), errors.New("the command was no box")
	}
	return "status 7", nil
}

// strictGoesOn: a machine whose cgroups are read-only is no less hard, so it
// does not end the boot.
func strictGoesOn(*bed) (string, error) {
	p := place{name: "strict", group: "readonly", inside: "umount /sys/fs/cgroup; mount -t cgroup2 -o ro none /sys/fs/cgroup; export OMB_CLOUD_HARDEN=strict"}
	r, _, err := p.start("--", "echo", "ran")
	if err != nil {
		return "", err
	}
	out := r.end()
	if out.code != 0 || out.stdout != "ran\n" || !strings.Contains(out.stderr, "boot step cgroup refused: ") {
		return out.String(), errors.New("strict ends the boot, or nothing is said")
	}
	return strings.ReplaceAll(out.stderr, "\n", "; "), nil
}

// noVsockEndsTheBoot: a worker that is to serve the host and cannot is none, and
// trying again is useless.
func noVsockEndsTheBoot(*bed) (string, error) {
	p := place{name: "hostless", group: "hostless", inside: fmt.Sprintf("export OMB_VSOCK_PORT=%d", reportPort)}
	boot := func() (output, error) {
		r, _, err := p.start("--", "echo", "ran")
		if err != nil {
			return output{}, err
		}
		return r.end(), nil
	}
	if out, err := boot(); err != nil || out.code != 0 || out.stdout != "ran\n" {
		return out.String(), errors.Join(err, errors.New("control: no boot with vsock"))
	}
	if err := os.Rename("/dev/vsock", "/dev/away"); err != nil {
		return "", err
	}
	out, err := boot()
	err = errors.Join(err, os.Rename("/dev/away", "/dev/vsock"))
	if err != nil || out.code != 100 || out.stdout != "" || !strings.Contains(out.stderr, "reason: no-vsock\n") {
		return out.String(), errors.Join(err, errors.New("it goes on, or does not say why not"))
	}
	return strings.ReplaceAll(out.stderr, "\n", "; "), nil
}

// containerRunsOut: the limit is the container's and no box's. The box that
// the kernel chose is told of by name all the same, on the container's stderr.
func containerRunsOut(*bed) (string, error) {
	p := place{name: "small", group: "small", inside: "umount /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup",
		before: func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/memory.max", []byte("112M"), 0o644), os.WriteFile(dir+"/memory.swap.max", []byte("0"), 0o644))
		}}
	r, _, err := p.start("--", "perl", "-e", hog)
	if err != nil {
		return "", err
	}
	out := r.end()
	if out.code != 137 || out.stdout != "up\n" || !strings.Contains(out.stderr, "ran out of memory") {
		return out.String(), errors.New("nobody says that the memory ran out")
	}
	return strings.ReplaceAll(out.stderr, "\n", "; "), nil
}
