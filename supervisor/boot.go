package main

import (
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/botuser"
	"github.com/openmausbot/botbox/supervisor/internal/control"
	"github.com/openmausbot/botbox/supervisor/internal/harden"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
)

// boot is what the steps know and find out.
type boot struct {
	args     []string // without the program's name
	env      []string // the container's own
	set      settings
	account  privdrop.Account
	steps    []wire.Step
	log      *control.Log
	programs []string        // this one and botbox
	users    *botuser.Leases // of bots; nil where they have none
	cgroup   int             // open folder of the worker's, or control.OurCgroup
}

// prepare reads the command line and the settings and looks for what must be
// there. It changes nothing.
func (b *boot) prepare() (mode control.Mode, command []string, err error) {
	if err := privdrop.RefuseCgo(); err != nil {
		return 0, nil, err
	}
	if mode, command, err = parseArgs(b.args); err != nil {
		return 0, nil, err
	}
	if b.set, err = parseSettings(b.env); err != nil {
		return 0, nil, err
	}
	if os.Geteuid() != 0 || os.Getuid() != 0 {
		return 0, nil, reason.New(reason.NotRoot, "started as user %d", os.Geteuid())
	}
	b.programs, err = findPrograms()
	return mode, command, err
}

// findPrograms names this program and botbox: beside it, or where packages
// put the programs that nobody calls by hand.
func findPrograms() ([]string, error) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, reason.New(reason.System, "find our own program: %w", err)
	}
	for _, dir := range []string{filepath.Dir(self), "/usr/libexec/botbox"} {
		var st unix.Stat_t
		worker := dir + "/botbox"
		if unix.Stat(worker, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			return []string{self, worker}, nil
		}
	}
	return nil, reason.New(reason.MissingProgram, "botbox is not beside botbox-supervisor nor in /usr/libexec/botbox")
}

// reexec hands everything to the second image. It returns only on failure.
func (b *boot) reexec() error {
	var records []wire.Record
	for _, a := range b.args {
		records = append(records, wire.Record{Kind: wire.RecArg, Value: a})
	}
	for _, e := range b.env {
		records = append(records, wire.Record{Kind: wire.RecEnv, Value: e})
	}
	for _, s := range b.steps {
		records = append(records, wire.StepRecord(s))
	}
	return reason.New(reason.NotDropped, "%w", privdrop.Reexec(records))
}

// resume takes over from the first image.
func (b *boot) resume() error {
	records, err := privdrop.State(os.Args)
	if err != nil {
		return reason.New(reason.NotDropped, "take over the boot: %w", err)
	}
	b.args, b.env = nil, nil
	for _, r := range records {
		switch r.Kind {
		case wire.RecArg:
			b.args = append(b.args, r.Value)
		case wire.RecEnv:
			b.env = append(b.env, r.Value)
		case wire.RecStep:
			s, err := wire.ParseStep(r)
			if err != nil {
				return reason.New(reason.NotDropped, "take over the boot: %w", err)
			}
			b.steps = append(b.steps, s)
		}
	}
	b.log = control.NewLog(b.env)
	// ps shows the thread's name, which the exec of /proc/self/exe made "exe".
	name := [16]byte{}
	copy(name[:15], "botbox-supervisor")
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name)), 0, 0, 0)
	// No core file and no ptrace of what holds the container's environment.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return reason.New(reason.System, "become undumpable: %w", err)
	}
	if state, evidence := b.findAccount(); state != wire.StepDone {
		return reason.New(reason.NoUser, "%s", evidence)
	}
	if err := b.openUsers(); err != nil {
		return err
	}
	return b.openCgroup()
}

// tidy takes the folder away that is nobody's but ours. OMB_RUN_DIR stays:
// others may have it mounted.
func (b *boot) tidy() {
	for _, s := range b.steps {
		if s.Name == "folders" && s.State == wire.StepDone && b.set.runDir != "" {
			unix.Rmdir(b.ctlDir())
		}
	}
}

// openUsers opens the table of bots once more, which the step bot-users checked.
func (b *boot) openUsers() error {
	set, err := parseSettings(b.env)
	if err != nil || !set.botUsers {
		return err
	}
	b.set = set
	table, err := botuser.Open(b.usersDir(), set.botRange)
	if err != nil {
		return reason.New(reason.BotUsersRange, "%w", err)
	}
	b.users = botuser.New(table, b.account)
	return nil
}

// openCgroup opens what the step cgroup gave the worker, if it did.
func (b *boot) openCgroup() (err error) {
	b.cgroup = control.OurCgroup
	for _, s := range b.steps {
		if s.Name == "cgroup" && s.State == wire.StepDone {
			if b.cgroup, err = harden.WorkerCgroup(); err != nil {
				return reason.New(reason.System, "open the worker's cgroup: %w", err)
			}
		}
	}
	return nil
}

func (b *boot) config(mode control.Mode, command []string) control.Config {
	return control.Config{
		Mode: mode, Command: command, Env: b.env, Account: b.account, Cgroup: b.cgroup, Program: b.programs[1],
		RunDir: b.set.runDir, StateDir: b.set.stateDir, CtlDir: b.ctlDir(),
		Drain: b.set.drain, Steps: b.steps, Recheck: b.recheckFly(), Users: b.users,
	}
}

// recheckFly locks the folder again when the platform has made it anew after
// the boot. As its owner root needs no capability for that.
func (b *boot) recheckFly() func() {
	was := wire.StepAbsent
	return func() {
		if b.set.harden == hardenOff {
			return
		}
		now, evidence := harden.LockFly(harden.FlyDir, b.account)
		if now != was && (now == wire.StepFailed || now == wire.StepRefused) {
			b.log.Warn("fly %s: %s", now, evidence)
		}
		was = now
	}
}
