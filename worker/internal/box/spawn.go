package box

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
)

// Spawner starts every program of this zone, from one thread that lives as
// long as the process. Linux sends a parent-death signal when the thread that
// forked ends, not its process (golang/go#27505): a box started from a thread
// that the Go runtime retires would be killed at random.
type Spawner struct{ jobs chan func() }

// NewSpawner starts the thread.
func NewSpawner() *Spawner {
	s := &Spawner{jobs: make(chan func())}
	go func() {
		runtime.LockOSThread() // and never unlocked
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// On runs a job on the thread, whose session keyring every program that it
// starts inherits.
func (s *Spawner) On(job func()) {
	done := make(chan struct{})
	s.jobs <- func() { job(); close(done) }
	<-done
}

// Close ends the thread, and with it what Beside started. It is for a Spawner
// of somebody's own, like the self-check's: the worker's lives as long as it.
func (s *Spawner) Close() { close(s.jobs) }

func (s *Spawner) start(cmd *exec.Cmd) error {
	done := make(chan error)
	s.jobs <- func() { done <- cmd.Start() }
	return <-done
}

// Child is a program that we started: a box's bubblewrap, mostly.
type Child struct{ cmd *exec.Cmd }

// Start makes a child of ours the box that the kit describes. Its environment
// is empty: what bubblewrap itself was started with could be read in the box,
// in /proc/1/environ. No parent-death signal is set: bubblewrap asks for one
// itself, later. One that fires before bubblewrap has let its first child go on
// leaves that child waiting for ever; without, boxentry finds nobody to say go.
func (s *Spawner) Start(k *Kit, stdio [3]*os.File, ownGroup bool) (*Child, error) {
	return s.become(k, stdio, &syscall.SysProcAttr{Setpgid: ownGroup})
}

// StartOn does the same in a session of its own whose terminal is stdio[0], as
// a shell's box has one that its caller works at.
func (s *Spawner) StartOn(k *Kit, stdio [3]*os.File) (*Child, error) {
	return s.become(k, stdio, &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0})
}

// StartBehind does it from a process between, whose child the box then is, as
// that of a driver's which asked for it: the words are that program's, and what
// it has to start follows them.
func (s *Spawner) StartBehind(k *Kit, program *os.File, words []string, stdio [3]*os.File) (*Child, error) {
	last := strconv.Itoa(k.First + len(k.Files)) // of the kit's files, and the program's own number
	through := *k
	through.Bwrap, through.Argv = "/proc/self/fd/"+last, slices.Concat(words, []string{last, k.Bwrap}, k.Argv)
	through.Files = append(slices.Clone(k.Files), program)
	cmd := through.command(stdio, &syscall.SysProcAttr{Setpgid: true})
	err := s.start(cmd)
	k.Release()
	if err != nil {
		return nil, reason.New(reason.BoxFailed, "start %s: %w", program.Name(), err)
	}
	return &Child{cmd}, nil
}

// command is the kit as a program to start.
func (k *Kit) command(stdio [3]*os.File, attr *syscall.SysProcAttr) *exec.Cmd {
	return &exec.Cmd{
		Path: k.Bwrap, Args: k.Argv, Env: append([]string{}, k.Env...), Dir: "/",
		Stdin: stdio[0], Stdout: stdio[1], Stderr: stdio[2],
		ExtraFiles:  slices.Concat(k.Below, k.Files),
		SysProcAttr: attr,
	}
}

func (s *Spawner) become(k *Kit, stdio [3]*os.File, attr *syscall.SysProcAttr) (*Child, error) {
	cmd := k.command(stdio, attr)
	err := s.start(cmd)
	k.Release()
	if err != nil {
		return nil, reason.New(reason.BoxFailed, "start %s: %w", k.Bwrap, err)
	}
	k.HeldBy(cmd.Process.Pid)
	return &Child{cmd}, nil
}

// Beside starts a program of ours outside every box, with no environment but
// env: the self-check's canary, and the question for boxprobe's table. It dies
// with this process.
func (s *Spawner) Beside(program *os.File, argv, env []string, stdin, stdout *os.File) (*Child, error) {
	cmd := &exec.Cmd{
		// By the open file: the folder that the program is in may be closed to
		// us. Its number stays the same in the child until it execs.
		Path: "/proc/self/fd/" + strconv.Itoa(int(program.Fd())),
		Args: argv, Env: env, Dir: "/", Stdin: stdin, Stdout: stdout,
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}
	if err := s.start(cmd); err != nil {
		return nil, reason.New(reason.System, "start %s: %w", program.Name(), err)
	}
	return &Child{cmd}, nil
}

// Pid is bubblewrap's outer process, or the program that Beside started.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Kill ends the program; bubblewrap takes its box with it.
func (c *Child) Kill() { c.cmd.Process.Kill() }

// Wait gives the exit status: the engine's, or 128+n when bubblewrap itself
// was killed by signal n.
func (c *Child) Wait() int {
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
			return reason.ExitSignalOffset + int(ws.Signal())
		}
		return exit.ExitCode()
	}
	if err != nil {
		return reason.ExitSystem
	}
	return 0
}

// lastWords is how long an output may stay open when its program has ended. A
// child that is just being forked holds it, too, until its own exec, and on a
// busy machine that took longer than the 100 ms that were enough elsewhere.
const lastWords = 700 * time.Millisecond

// ask runs bubblewrap for an answer: its version, its options, or whether the
// kernel lets it build a trial box. It waits to the deadline, and lastWords more at
// the most.
func (s *Spawner) ask(within time.Duration, files []*os.File, path string, args ...string) (out []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	out, err = s.said(cmd, files...)
	if ctx.Err() != nil {
		return out, context.DeadlineExceeded
	}
	return out, err
}

// said runs a program without an environment, with these files from 3 on, to
// its end, and gives what it says.
func (s *Spawner) said(cmd *exec.Cmd, files ...*os.File) ([]byte, error) {
	cmd.Env, cmd.Dir, cmd.ExtraFiles = []string{}, "/", files
	cmd.WaitDelay = lastWords
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var buf limited
	cmd.Stdout, cmd.Stderr = &buf, &buf
	if err := s.start(cmd); err != nil {
		return nil, err
	}
	err := cmd.Wait()
	return buf.b, err
}

// inNamespaces starts boxentry in a user namespace of its own, by the call that
// bubblewrap makes too, and with what unshareflags adds; what it runs there
// keeps caps. The error is the kernel's, or of boxentry's status.
func (s *Spawner) inNamespaces(within time.Duration, entry *os.File, unshareflags uintptr, caps []uintptr, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/fd/"+strconv.Itoa(int(entry.Fd())), args...)
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWUSER, Unshareflags: unshareflags, AmbientCaps: caps,
	}
	if err := s.start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// exited tells whether a program ran, and ended with a status that is not 0.
func exited(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.Exited()
}

// holder starts boxentry in a user namespace of its own, where it waits for the
// end of stdin.
func (s *Spawner) holder(entry Program, stdin *os.File) (*Child, error) {
	cmd := &exec.Cmd{
		Path: "/proc/self/fd/" + strconv.Itoa(int(entry.Fd())), Args: []string{"boxentry", "hold"},
		Env: []string{}, Dir: "/", Stdin: stdin, SysProcAttr: holding(),
	}
	if err := s.start(cmd); err != nil {
		return nil, err
	}
	return &Child{cmd}, nil
}

// AsAccount runs this very program with args in a user's namespace, where it
// is root over what the account and the bot have, and gives what it says.
func (s *Spawner) AsAccount(within time.Duration, u *User, self *os.File, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	words := []string{"--user=/proc/self/fd/3", "--setuid=0", "--setgid=0", "--", "/proc/self/fd/4"}
	return s.said(exec.CommandContext(ctx, u.Nsenter, append(words, args...)...), u.Space, self)
}

// limited keeps the first 64 KiB of what a program says.
type limited struct{ b []byte }

func (l *limited) Write(p []byte) (int, error) {
	l.b = append(l.b, p[:min(len(p), 64<<10-len(l.b))]...)
	return len(p), nil
}
