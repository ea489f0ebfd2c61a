package main

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/botuser"
	"github.com/openmausbot/botbox/supervisor/internal/harden"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
)

// step is one boot step. The order of the table is the order of the boot.
type step struct {
	name string
	do   func(*boot) (wire.StepState, string)
	need reason.Code // ends the boot when refused or failed; empty: only under strict; optional: never
	why  string
}

// optional is the need of a step without which nothing is weaker: whoever asks
// for what it brings is refused by name.
const optional reason.Code = "optional"

// beforeExec are the steps of the first image, which has every capability.
var beforeExec = []step{
	{"account", (*boot).findAccount, reason.NoUser, "nothing but this program runs as root, and there is no fallback to it"},
	{"folders", (*boot).makeFolders, reason.NotYours, "a name in a folder of somebody else's can be swapped between two looks"},
	{"code-trust", (*boot).trustCode, "", "who can write our programs is root with the next start"},
	{"hidepid", (*boot).hideProcesses, "", "other users' command lines and environments hold keys"},
	{"fly", (*boot).lockFly, "", "the platform's socket stops the machine and mints identity tokens"},
	{"cgroup", (*boot).giveCgroup, optional, "a worker that rules a cgroup can bound a box's memory and processors, and end it whole"},
	{"bot-users", (*boot).reserveUsers, reason.BotUsersRange, "an id that somebody else has or gets would own what a bot wrote"},
	{"subreaper", (*boot).becomeSubreaper, reason.System, "orphans come to us also where we are not PID 1"},
	{"drop", (*boot).drop, reason.NotDropped, "what root never needs again it cannot be tricked into using"},
}

// afterExec are the steps of the second image, which has three left.
var afterExec = []step{
	{"reexec", (*boot).verify, reason.NotDropped, "a drop that was not read back is a hope"},
}

// run does the steps in order. A step never ends in silence: its state and
// what was read back go into the report.
func (b *boot) run(steps []step) error {
	for _, s := range steps {
		state, evidence := s.do(b)
		b.steps = append(b.steps, wire.Step{Name: s.name, State: state, Evidence: evidence})
		if state != wire.StepRefused && state != wire.StepFailed {
			continue
		}
		switch {
		case s.need == optional:
		case s.need != "":
			return reason.New(s.need, "boot step %s %s: %s", s.name, state, evidence)
		case b.set.harden == hardenStrict:
			return reason.New(reason.NotHardened, "boot step %s %s: %s", s.name, state, evidence)
		}
		b.log.Warn("boot step %s %s: %s", s.name, state, evidence)
	}
	return nil
}

func (b *boot) findAccount() (wire.StepState, string) {
	passwd, err := os.ReadFile("/etc/passwd")
	if err == nil {
		b.account, err = privdrop.FindAccount(string(passwd))
	}
	if err != nil {
		return wire.StepFailed, err.Error()
	}
	return wire.StepDone, fmt.Sprintf("%s is user %d group %d", privdrop.AccountName, b.account.UID, b.account.GID)
}

func (b *boot) makeFolders() (wire.StepState, string) {
	id := b.account
	for _, f := range []struct {
		called string
		harden.Folder
	}{
		{"OMB_RUN_DIR", harden.Folder{Path: b.set.runDir, UID: id.UID, GID: id.GID, Mode: 0o700}},
		{"OMB_STATE_DIR", harden.Folder{Path: b.set.stateDir, UID: id.UID, GID: id.GID, Mode: 0o700}},
		{"OMB_RUN_DIR with .ctl", harden.Folder{Path: b.ctlDir(), Mode: 0o700}},
	} {
		if err := harden.MakeFolder(f.Folder); err != nil {
			return wire.StepFailed, f.called + ": " + err.Error()
		}
	}
	return wire.StepDone, "run and state folder 0700 of the account, control folder 0700 of root"
}

func (b *boot) ctlDir() string { return b.set.runDir + ".ctl" }

func (b *boot) trustCode() (wire.StepState, string) {
	return harden.TrustCode(b.programs...)
}

func (b *boot) hideProcesses() (wire.StepState, string) {
	if b.set.harden == hardenOff {
		return wire.StepSkipped, "OMB_CLOUD_HARDEN=0"
	}
	return harden.HideProcesses(b.account)
}

func (b *boot) lockFly() (wire.StepState, string) {
	if b.set.harden == hardenOff {
		return wire.StepSkipped, "OMB_CLOUD_HARDEN=0"
	}
	return harden.LockFly(harden.FlyDir, b.account)
}

func (b *boot) usersDir() string { return b.set.stateDir + ".ctl" }

// reserveUsers sees to it that the ids of bots are nobody else's, and that the
// table of who has which can be read.
func (b *boot) reserveUsers() (wire.StepState, string) {
	if !b.set.botUsers {
		return wire.StepSkipped, "OMB_BOT_USERS=0: boxes run as " + privdrop.AccountName
	}
	if err := b.set.botRange.Check(botuser.MachineFiles()); err != nil {
		return wire.StepRefused, err.Error()
	}
	if err := harden.MakeFolder(harden.Folder{Path: b.usersDir(), Mode: 0o700}); err != nil {
		return wire.StepFailed, "OMB_STATE_DIR with .ctl: " + err.Error()
	}
	table, err := botuser.Open(b.usersDir(), b.set.botRange)
	if err != nil {
		return wire.StepFailed, err.Error()
	}
	defer table.Close()
	return wire.StepDone, fmt.Sprintf("users and groups %s are nobody else's, %d bots have one", b.set.botRange, table.Bots())
}

func (b *boot) giveCgroup() (wire.StepState, string) { return harden.GiveCgroup(b.account) }

func (b *boot) becomeSubreaper() (wire.StepState, string) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return wire.StepFailed, err.Error()
	}
	var set int32
	if err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&set)), 0, 0, 0); err != nil || set != 1 {
		return wire.StepFailed, fmt.Sprintf("reads back %d", set)
	}
	return wire.StepDone, "reads back 1"
}

func (b *boot) drop() (wire.StepState, string)   { return done(privdrop.Drop()) }
func (b *boot) verify() (wire.StepState, string) { return done(privdrop.Verify()) }

func done(evidence string, err error) (wire.StepState, string) {
	if err != nil {
		return wire.StepFailed, err.Error()
	}
	return wire.StepDone, evidence
}
