package box

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/seccomp"
)

// probeTime bounds a whole detection. A machine that is slower gets a reason,
// and nobody waits for it: a probe that walked an automounted tree held an
// engine back for half a minute (codex#19828).
const probeTime = 2 * time.Second

// probe is one detection.
type probe struct {
	s        *Spawner
	entry    Program
	deadline time.Time
	machine  machine

	layers   []Layer
	err      error // of the first layer that does not hold
	nameless bool  // the trial box is built without a host name of its own
}

// Detect tells whether this machine can build a box, by building a small one.
// entry is boxentry: a static program that every machine that runs us has,
// where /bin/true is missing on some.
func (s *Spawner) Detect(path string, entry Program) Finding {
	return s.newProbe(entry).run(path, false)
}

// Examine is Detect that tries each layer by itself, also where all hold.
func (s *Spawner) Examine(path string, entry Program) Finding {
	return s.newProbe(entry).run(path, true)
}

// Nameless tells whether boxes stand here but for a host name of their own: the
// filters of podman and of Docker let whoever lacks CAP_SYS_ADMIN make a
// namespace with a host name, and not set one in it. Only where there is a
// filter does it try a box, so that nobody else waits for it.
func (s *Spawner) Nameless(path string, entry Program) bool {
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	if err != nil || mode == 0 {
		return false
	}
	bwrap, err := FindBwrap(path)
	if err != nil {
		return false
	}
	p := s.newProbe(entry)
	if p.trial(bwrap, len(stages)) == nil {
		return false
	}
	p.nameless = true
	return p.trial(bwrap, len(stages)) == nil
}

func (s *Spawner) newProbe(entry Program) *probe {
	p := &probe{s: s, entry: entry, deadline: time.Now().Add(probeTime)}
	p.machine = p.thisMachine()
	return p
}

func (p *probe) run(path string, each bool) (f Finding) {
	p.layer("bubblewrap in PATH, safely owned", func() (err error) {
		f.Bwrap, err = FindBwrap(path)
		return err
	})
	p.layer("its version and options", func() (err error) {
		f.Version, err = p.version(f.Bwrap)
		return err
	})
	// The whole trial box at once is all that a start of ours waits for; which
	// stage fails is looked for only if it does not stand.
	if each || p.err != nil || p.trial(f.Bwrap, len(stages)) != nil {
		for i, stage := range stages {
			p.layer(stage.what, func() error { return p.stage(f.Bwrap, i) })
		}
	}
	f.Layers, f.Err = p.layers, p.err
	return f
}

// layer tries one layer, unless an earlier one is missing.
func (p *probe) layer(name string, do func() error) {
	l := Layer{Name: name}
	if p.err == nil {
		begin := time.Now()
		p.err = do()
		l.Tried, l.Holds, l.Took = true, p.err == nil, time.Since(begin)
	}
	p.layers = append(p.layers, l)
}

// neededOptions are those that this package uses and that bubblewrap 0.8.0 may
// lack: --bind-fd came with the fix of CVE-2024-42472, which Debian and Ubuntu
// carry in 0.8.0 and 0.9.0.
var neededOptions = []string{"--bind-fd", "--ro-bind-fd", "--args", "--json-status-fd", "--disable-userns", "--size", "--perms", "--clearenv", "--die-with-parent"}

func (p *probe) version(bwrap string) (string, error) {
	out, err := p.ask(nil, bwrap, "--version")
	if err := unstarted(bwrap, err); err != nil {
		return "", err
	}
	version, major, minor := parseVersion(string(out))
	if err != nil || version == "" {
		return "", reason.New(reason.BwrapTooOld, "%s does not say its version", bwrap)
	}
	if major == 0 && minor < 8 {
		return version, reason.New(reason.BwrapTooOld, "%s is version %s; the box needs 0.8.0", bwrap, version)
	}
	help, err := p.ask(nil, bwrap, "--help")
	if err := unstarted(bwrap, err); err != nil {
		return version, err
	}
	for _, option := range neededOptions {
		if !bytes.Contains(help, []byte(option+" ")) {
			return version, reason.New(reason.BwrapTooOld, "%s (version %s) lacks the option %s", bwrap, version, option)
		}
	}
	return version, nil
}

// unstarted is nil for a program that ran to its end, however that was.
func unstarted(bwrap string, err error) error {
	var start *fs.PathError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return reason.New(reason.ProbeTimeout, "%s did not answer: all of this may take %v", bwrap, probeTime)
	case errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOENT):
		return reason.New(reason.BwrapNotRunnable, "%s cannot be run: %w", bwrap, err)
	case errors.As(err, &start): // out of processes or memory
		return reason.New(reason.System, "%w", err)
	}
	return nil
}

// parseVersion reads "bubblewrap 0.8.0"; the version is empty if it is not
// that.
func parseVersion(line string) (version string, major, minor int) {
	words := strings.Fields(line)
	if len(words) != 2 || words[0] != "bubblewrap" {
		return "", 0, 0
	}
	numbers := strings.Split(words[1], ".")
	if len(numbers) < 2 {
		return "", 0, 0
	}
	major, errMajor := strconv.Atoi(numbers[0])
	minor, errMinor := strconv.Atoi(numbers[1])
	if errMajor != nil || errMinor != nil {
		return "", 0, 0
	}
	return words[1], major, minor
}

// stage is one layer of the trial box.
type stage struct {
	options []string
	filter  bool // and a system-call filter
	code    reason.Code
	what    string
	flags   int      // what the kernel is asked for
	limits  []string // the names of the settings that bound it, below /proc/sys/user
}

// stages add one layer after the other, so that the first that fails is the
// cause. What bubblewrap prints is not relied on: its words change
// (codex#44304).
var stages = []stage{
	{[]string{"--unshare-user"}, false, reason.UsernsRefused, "a user namespace with mounts of its own",
		unix.CLONE_NEWUSER | unix.CLONE_NEWNS, []string{"max_user_namespaces", "max_mnt_namespaces"}},
	{[]string{"--unshare-pid", "--proc", "/proc"}, false, reason.ProcMasked, "a /proc of its own",
		unix.CLONE_NEWPID, []string{"max_pid_namespaces"}},
	{[]string{"--unshare-net"}, false, reason.NetRefused, "a network namespace with a loopback",
		unix.CLONE_NEWNET, []string{"max_net_namespaces"}},
	{[]string{"--unshare-ipc", "--unshare-uts", "--unshare-cgroup", "--dev", "/dev", "--disable-userns", "--hostname", HostName}, false, reason.BoxFailed, "the remaining namespaces",
		unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP, []string{"max_ipc_namespaces", "max_uts_namespaces", "max_cgroup_namespaces"}},
	{nil, true, reason.BoxFailed, "a system-call filter", 0, nil},
}

// stage tries a box with the layers up to the i-th.
func (p *probe) stage(bwrap string, i int) error {
	var ours *reason.Error
	err := p.trial(bwrap, i+1)
	// Without a host name of its own it is still a box: see Nameless.
	if err != nil && !p.nameless && slices.Contains(stages[i].options, "--hostname") {
		p.nameless = true
		err = p.trial(bwrap, i+1)
	}
	switch {
	case err == nil, errors.As(err, &ours):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return reason.New(reason.ProbeTimeout, "a trial box did not stand: all of this may take %v", probeTime)
	}
	return p.machine.cause(i)
}

func (p *probe) trial(bwrap string, upTo int) error {
	file, err := p.entry.open()
	if err != nil {
		return err
	}
	files := []*os.File{file}
	defer func() { closeFiles(files) }()
	args := p.entry.options(ChildFD, EntryPath)
	for _, stage := range stages[:upTo] {
		options := stage.options
		if name := slices.Index(options, "--hostname"); p.nameless && name >= 0 {
			options = slices.Delete(slices.Clone(options), name, name+2)
		}
		args = append(args, options...)
		if stage.filter {
			filter, err := seccompFile(&Plan{Seccomp: seccomp.Engine})
			if err != nil {
				return err
			}
			args = append(args, "--seccomp", strconv.Itoa(ChildFD+len(files)))
			files = append(files, filter)
		}
	}
	_, err = p.ask(files, bwrap, append(args, "--", EntryPath, "trial")...)
	return err
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func (p *probe) ask(files []*os.File, path string, args ...string) ([]byte, error) {
	return p.s.ask(time.Until(p.deadline), files, path, args...)
}
