package control

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
	"github.com/openmausbot/botbox/supervisor/internal/reap"
)

// asAccount starts a child with the account's ids, no other group, its own
// cgroup from the first moment on, and death when the main thread, which is to
// say the supervisor, dies.
func asAccount(c Config) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: c.Account.UID, Gid: c.Account.GID},
		Pdeathsig:   syscall.SIGKILL,
		UseCgroupFD: c.Cgroup != OurCgroup,
		CgroupFD:    c.Cgroup,
	}
}

// startBotbox starts botbox with these files from 3 on, and behind them a pipe
// with what nobody else may read: it stands in no environment and no file.
func startBotbox(c Config, table *reap.Table, argv []string, files []int, hand []byte) (int, error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return 0, err
	}
	all := []uintptr{0, 1, 2}
	for _, fd := range append(files, pipe[0]) {
		all = append(all, uintptr(fd))
	}
	pid, err := table.Start(c.Program, argv, &syscall.ProcAttr{
		Env: workerEnv(c.Env, c.Account, c.RunDir, c.StateDir), Files: all, Sys: asAccount(c),
	})
	unix.Close(pipe[0])
	if err != nil {
		unix.Close(pipe[1])
		return 0, err
	}
	go handOver(pipe[1], hand)
	return pid, nil
}

// startCommand starts what becomes the command. A plain one it just executes.
// For a box it asks the worker, as anybody does, and becomes that: so the box
// is our own child, and no worker's death ends it.
func startCommand(c Config, table *reap.Table) (int, error) {
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	spec, err := wire.EncodeStartSpec(wire.StartSpec{Argv: c.Command, Dir: dir, Env: containerEnv(c.Env)})
	if err != nil {
		return 0, err
	}
	verb := "plain"
	if c.Mode == Box {
		verb = "run"
	}
	return startBotbox(c, table, []string{"botbox", verb, "--control"}, nil, spec)
}

// notStartable tells a missing program, which stays missing, from a system
// that is short of something.
func notStartable(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOEXEC) {
		return reason.New(reason.MissingProgram, "execute botbox as %s: %w", privdrop.AccountName, err)
	}
	return err
}

// handOver writes to a worker that may read late or never; its death ends it.
func handOver(fd int, b []byte) {
	unix.SetNonblock(fd, true) // so that it waits in the poller, not in a thread
	f := os.NewFile(uintptr(fd), "handover")
	f.Write(b)
	f.Close()
}
