package harden

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
)

// nowhere is the cgroup of a probe that starts in ours.
const nowhere = -1

// enters tells whether a child with the account's ids can enter dir. The child
// never runs a program: after chdir it is told to execute a name longer than
// any path, so ENAMETOOLONG means that it got in. group is the cgroup that it is
// started in.
func enters(id privdrop.Account, dir string, group int) (bool, error) {
	_, err := syscall.ForkExec("/"+strings.Repeat("x", unix.PathMax), []string{"probe"}, &syscall.ProcAttr{
		Dir: dir,
		Sys: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id.UID, Gid: id.GID},
			UseCgroupFD: group != nowhere, CgroupFD: group},
	})
	switch {
	case err == nil:
		return false, errors.New("the probe as the account was killed")
	case errors.Is(err, unix.ENAMETOOLONG):
		return true, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EACCES):
		return false, nil
	}
	return false, fmt.Errorf("the probe as the account could not run: %w", err)
}

// stateOf tells what an error of the system says about a step: whether it was not
// allowed here, or went wrong.
func stateOf(err error) wire.StepState {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EROFS) {
		return wire.StepRefused
	}
	return wire.StepFailed
}
