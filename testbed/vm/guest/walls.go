package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// landlockOf is the version of Landlock that a kernel has.
var landlockOf = map[string]int{"6.1": 2, "6.12": 6}

func release() string {
	return strings.Join(strings.SplitN(read("/proc/sys/kernel/osrelease"), ".", 3)[:2], ".")
}

// landlock shows which version confines a box, and that it does: without it
// the checks that look through it fail.
func landlock(b *bed) (string, error) {
	r, err := b.box("walled", `{}`, `$| = 1; print "up\n"; sleep 60`)
	if err != nil {
		return "", err
	}
	told, _ := b.get("/v1/boxes/walled")
	r.kill()
	var box struct{ Landlock int }
	if json.Unmarshal([]byte(told), &box) != nil || box.Landlock == 0 || box.Landlock != landlockOf[release()] {
		return told + read("/sys/kernel/security/lsm"), fmt.Errorf("not the version of Linux %s", release())
	}
	looks := []string{"S15", "S16"}
	if box.Landlock < 6 { // S16 is about signals, which it bounds from then on
		looks = looks[:1]
	}
	without, err := withoutLandlock(b, looks)
	if err != nil {
		return "", err
	}
	for _, id := range looks {
		if b.full.verdict(id) != "pass" || without.verdict(id) != "fail" {
			return without.String(), fmt.Errorf("%s is %s, without Landlock %s", id, b.full.verdict(id), without.verdict(id))
		}
	}
	return fmt.Sprintf("version %d holds %v; without it %s", box.Landlock, looks, without.Checks), nil
}

// withoutLandlock asks again while a look is inconclusive, as fullSelfCheck
// does, three times at most: a failure beside a check that was late is none.
func withoutLandlock(b *bed, looks []string) (c checked, err error) {
	for range 3 {
		if c, err = check(b, "--profile", "full", "--mutate", "no-landlock"); err != nil {
			return c, err
		}
		if !slices.ContainsFunc(looks, func(id string) bool { return c.verdict(id) == "inconclusive" }) {
			break
		}
	}
	return c, nil
}

// vsock: its addresses are not those of a network namespace, so a box that has
// such a socket reaches the machine. Only in this machine may one be connected.
func vsock(b *bed) (string, error) {
	const port = 5002
	fd, err := listenVsock(port)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	go func() {
		for {
			conn, _, err := unix.Accept(fd)
			if err != nil {
				return
			}
			unix.Write(conn, []byte("from the machine"))
			unix.Close(conn)
		}
	}()
	dial := dialVsock(selfCID, port)
	if out := b.maus("perl", "-e", dial); out.stdout != "got: from the machine" {
		return out.String(), errors.New("control: maus outside a box does not reach the listener")
	}
	out := b.botbox("run", "--", "perl", "-e", dial)
	if out.code != 0 || !strings.HasPrefix(out.stdout, "socket: ") {
		return out.String(), errors.New("a box has a socket of the machine's")
	}
	return out.stdout, nil
}

// apparmor first loads a profile that keeps user namespaces from bubblewrap,
// as Ubuntu does to every program without one, and then the one that we ship.
func apparmor(b *bed) (string, error) {
	if !strings.Contains(read("/sys/kernel/security/lsm"), "apparmor") {
		return read("/sys/kernel/security/lsm"), errors.New("there is no AppArmor in this kernel")
	}
	// Linux 6.1 leaves user namespaces to everybody: no profile is needed, and
	// its parser does not know the rule in ours.
	if !strings.Contains(read("/sys/kernel/security/apparmor/features/namespaces/mask"), "userns_create") && release() == "6.1" {
		if out := b.botbox("run", "--", "echo", "ran"); out.code != 0 || out.stdout != "ran\n" {
			return out.String(), errors.New("no box without a profile")
		}
		return "this kernel's AppArmor has no say in user namespaces", nil
	}
	// Everything that there is a rule for, and no user namespace.
	const denies = "abi <abi/4.0>,\nprofile bwrap /usr/bin/bwrap flags=(attach_disconnected) {\n  file,\n  capability,\n  network,\n  unix,\n  signal,\n  ptrace,\n  mount,\n  remount,\n  umount,\n  pivot_root,\n}\n"
	if err := os.WriteFile("/run/denies", []byte(denies), 0o644); err != nil {
		return "", err
	}
	load := func(file string) error {
		if out := alone("apparmor_parser", "--skip-cache", "-r", file); out.code != 0 {
			return errors.New(out.String())
		}
		return nil
	}
	before := b.botbox("run", "--", "echo", "ran")
	if err := load("/run/denies"); err != nil {
		return "", fmt.Errorf("control: %w", err)
	}
	denied := b.botbox("run", "--", "echo", "ran")
	if err := load(programs + "/bwrap.profile"); err != nil {
		return "", fmt.Errorf("ours does not load: %w", err)
	}
	if before.code != 0 || denied.stdout != "" || !strings.Contains(denied.stderr, "namespace") {
		return fmt.Sprint(before, denied), errors.New("control: a profile that allows no user namespace denies none")
	}
	out := b.botbox("run", "--", "echo", "ran")
	label, err := boxLabel(b)
	if err != nil || out.code != 0 || out.stdout != "ran\n" || label != "bwrap (unconfined)" {
		return label + out.String(), errors.Join(err, errors.New("no box under the profile"))
	}
	return label + "; without userns: " + strings.TrimSpace(denied.stderr), nil
}

// boxLabel is the AppArmor label of a running bubblewrap.
func boxLabel(b *bed) (string, error) {
	r, err := b.box("labelled", `{}`, `$| = 1; print "up\n"; sleep 60`)
	if err != nil {
		return "", err
	}
	defer r.kill()
	return read("/proc", fmt.Sprint(r.Process.Pid), "attr/current"), nil
}

// checked is what `botbox check` says.
type checked struct {
	Checks  string
	Failed  []string
	Results []result
}

type result struct {
	ID, Verdict, Why string
	MS               int64
}

// slowest is the check that took longest.
func (c checked) slowest() string {
	r := slices.MaxFunc(c.Results, func(a, b result) int { return cmp.Compare(a.MS, b.MS) })
	return fmt.Sprintf("%s took %d ms", r.ID, r.MS)
}

func (c checked) verdict(id string) string {
	for _, r := range c.Results {
		if r.ID == id {
			return r.Verdict
		}
	}
	return "missing"
}

func (c checked) String() string {
	text := c.Checks
	for _, r := range c.Results {
		if r.Verdict != "pass" {
			text += fmt.Sprintf(" %s %s: %s;", r.ID, r.Verdict, r.Why)
		}
	}
	return text
}

func check(b *bed, words ...string) (c checked, err error) {
	out := b.botbox(append([]string{"check", "--json"}, words...)...)
	if err := json.Unmarshal([]byte(out.stdout), &c); err != nil || c.Checks == "" {
		return c, fmt.Errorf("no report: %v", out)
	}
	return c, nil
}

// fullSelfCheck wants every check to pass. One that starts hundreds of processes
// can take an emulated processor longer than a check may take: it is
// inconclusive then, and asked again. One that fails has failed.
func fullSelfCheck(b *bed) (string, error) {
	var late []string
	for run := 1; ; run++ {
		c, err := check(b, "--profile", "full")
		if err != nil {
			return "", err
		}
		if b.full.Results == nil {
			b.full = c
		}
		late = nil
		for i, r := range b.full.Results {
			if r.Verdict != "pass" { // in no run before
				b.full.Results[i].Verdict = c.verdict(r.ID)
			}
			switch {
			case c.verdict(r.ID) != "pass" && c.verdict(r.ID) != "inconclusive":
				return c.String(), fmt.Errorf("%s is %s", r.ID, c.verdict(r.ID))
			case b.full.Results[i].Verdict != "pass":
				late = append(late, r.ID)
			}
		}
		if len(late) == 0 {
			return fmt.Sprintf("%d checks in %d runs; %s", len(b.full.Results), run, c.slowest()), nil
		}
		if run == 3 {
			return c.String(), fmt.Errorf("in %d runs no outcome of %v", run, late)
		}
	}
}

// selfCheck is the one that the worker makes by itself.
func selfCheck(b *bed) (string, error) {
	c, err := check(b)
	if err != nil || len(c.Failed) > 0 {
		return c.String(), errors.Join(err, errors.New("not every check passed"))
	}
	return c.Checks, nil
}

// workerComesBack kills the worker. The next one rules the same cgroup, and
// tidies up after the box that the one before it left behind.
func workerComesBack(b *bed) (string, error) {
	open, err := b.box("open", `{"memory_mb":64}`, `my $go; $SIG{USR1} = sub { $go = 1 }; $| = 1; print "up\n"; sleep 1 until $go; `+hog)
	if err != nil {
		return "", err
	}
	defer open.kill()
	engine := b.pid("open")
	took, err := b.anotherWorker()
	if err != nil {
		return "", err
	}
	out := b.botbox("run", "--memory", "64M", "--cpu", "0.5", "--json", "--", "echo", "ran")
	if out.code != 0 || out.stdout != "ran\n" || !strings.Contains(out.stderr, `"cpu":"cgroup"`) || !strings.Contains(out.stderr, `"memory":"cgroup"`) {
		return out.String(), errors.New("the next worker holds no limits")
	}
	group := b.part("box-open")
	if read(group, "cgroup.procs") == "" {
		return "", errors.New("control: the box that was open is gone already")
	}
	if now := b.pid("open"); now != engine || engine <= 1 {
		return fmt.Sprint(engine, now), errors.New("the next worker does not have the box")
	}
	// A second box of that name must not get into the first one's cgroup.
	again := b.boxed("open", `{"memory_mb":64}`, `print "ran"`)
	if err := again.startIn(b.part("botbox-worker")); err != nil {
		return "", err
	}
	if out := again.end(); out.code != 100 || out.stdout != "" || !strings.Contains(out.stderr, "a box of this name is running") {
		return out.String(), errors.New("two boxes are in one cgroup")
	}
	// The next worker holds it to its limit, and tells what it ended of.
	unix.Kill(engine, unix.SIGUSR1)
	var told string
	err = eventually(20*time.Second, func() bool {
		told, _ = b.get("/v1/boxes/open")
		return strings.Contains(told, `"end":"oom"`) && strings.Contains(told, `"code":137`)
	})
	if err != nil {
		return told, errors.New("it did not end of its memory")
	}
	if err := eventually(5*time.Second, func() bool { _, err := os.Stat(group); return err != nil }); err != nil {
		return "", fmt.Errorf("its cgroup stays: %w", err)
	}
	return took.String(), nil
}

// pid is the engine's of a box, 0 without one.
func (b *bed) pid(box string) int {
	var told struct{ Pid int }
	text, err := b.get("/v1/boxes/" + box)
	if err != nil || json.Unmarshal([]byte(text), &told) != nil {
		return 0
	}
	return told.Pid
}
