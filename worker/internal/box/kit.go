package box

import (
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/seccomp"
)

// The number of a kit's first file in bubblewrap's process.
const (
	// PipeFD and the one after it are a browser's debugging pipe, by Chrome's
	// own convention: it reads commands from 3 and writes answers to 4.
	PipeFD = 3
	// ChildFD is where os/exec puts the files of a child.
	ChildFD = 3
	// LeaseFD is above the numbers that the Go runtime uses in a process that
	// becomes the box: it must not lose its poller before it execs. And it is
	// low enough for all numbers to stay below 64, where the kernel has to
	// enlarge the table of a process with threads and waits some 6 ms for it.
	LeaseFD = 16
)

// Kit is everything that a process needs to become a box: a command line and
// the open files that it names by number. Whoever execs it, a child of ours
// or the process that asked for the lease, it is the same kit.
type Kit struct {
	Bwrap   string     // absolute path of what is executed: bubblewrap, or nsenter for it
	Argv    []string   // Argv[0] is Bwrap
	Options []string   // what bubblewrap reads from the options' memfd
	First   int        // ChildFD or LeaseFD
	Files   []*os.File // Files[i] must become descriptor First+i
	Env     []string   // bubblewrap's own environment: empty but in a self-check
	// Below are the files between stdio and First in a child of ours: a
	// browser's debugging pipe, or none.
	Below []*os.File
	// Disks are folders of the box, one of each of the machine's file systems
	// that it can write.
	Disks []*os.File

	feet   []footing     // where its nested mounts have to stand
	entry  *net.UnixConn // our end of the entry socket
	far    uint64        // the inode of the other end, which the box holds
	status *os.File      // our end of the status pipe
	user   *User         // the box's own
	holder *Process      // who becomes bubblewrap, when that is known
}

// Programs are the two programs that a kit is made of.
type Programs struct {
	Bwrap string // absolute path, checked by FindBwrap
	Entry Program
}

// Assemble opens what the plan names and writes the command line, for files
// that are numbered from first on.
func Assemble(p *Plan, progs Programs, first int) (*Kit, error) {
	if p.Pipe && first <= PipeFD+1 {
		return nil, reason.New(reason.BadSpec, "the spec is not usable: field browser.debug_pipe: whoever asks here has none")
	}
	k := &Kit{Bwrap: progs.Bwrap, First: first}
	if err := k.assemble(p, progs); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

func (k *Kit) assemble(p *Plan, progs Programs) error {
	for i := range p.Mounts {
		if p.Mounts[i].Dest == EntryPath {
			p.Mounts[i].Program = &progs.Entry
		}
	}
	h := Handles{Mounts: map[string]int{}, Files: map[string]int{}}
	if p.User != nil {
		k.Bwrap, k.user = p.User.Nsenter, p.User
		h.User = k.pass(p.User.Space) // first, so that it is closed whatever fails
	}
	sources, feet, err := openSources(p)
	if err != nil {
		return err
	}
	k.feet = feet
	for _, m := range p.Mounts { // in the plan's order: the command line is reproducible
		if f := sources[m.Dest]; f != nil {
			h.Mounts[m.Dest] = k.pass(f)
		}
	}
	if err := k.keepDisks(p, sources); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(p.Files)) {
		content, err := Sealed("file", []byte(p.Files[path]))
		if err != nil {
			return err
		}
		h.Files[path] = k.pass(content)
	}
	for _, d := range p.Data {
		content, err := Sealed("data", d.Content)
		if err != nil {
			return err
		}
		h.Data = append(h.Data, k.pass(content))
	}
	if p.filtered() {
		filter, err := seccompFile(p)
		if err != nil {
			return err
		}
		h.Seccomp = k.pass(filter)
	}
	if err := k.connect(&h); err != nil {
		return err
	}
	if err := k.order(p.Spares); err != nil {
		return err
	}
	k.Options = Options(p, h)
	options, err := Sealed("bwrap-options", []byte(strings.Join(k.Options, "\x00")+"\x00"))
	if err != nil {
		return err
	}
	h.Options = k.pass(options)
	k.Argv, k.Env = Command(p, progs.Bwrap, h), append([]string{}, p.Lacks.Quiet...)
	return nil
}

// pass gives the file its number in bubblewrap's process.
func (k *Kit) pass(f *os.File) int {
	k.Files = append(k.Files, f)
	return k.First + len(k.Files) - 1
}

// again opens a file once more, for a process that closes its copy.
func again(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, reason.New(reason.System, "pass %s on: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func seccompFile(p *Plan) (*os.File, error) {
	if p.Lacks.Weakened != nil {
		return Sealed("seccomp", p.Lacks.Weakened)
	}
	arch, err := seccomp.Native()
	if err != nil {
		return nil, reason.New(reason.BoxFailed, "no system-call filter for this processor: %w", err)
	}
	return Sealed("seccomp", seccomp.Assemble(p.Seccomp, arch))
}

// connect makes the entry socket and the status pipe. Our ends close on exec,
// and the worker's are the only ones left once bubblewrap has closed its own:
// their end of file means that the box is gone.
func (k *Kit) connect(h *Handles) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return reason.New(reason.System, "make the entry socket: %w", err)
	}
	h.Socket = k.pass(os.NewFile(uintptr(pair[1]), "entry"))
	ours := os.NewFile(uintptr(pair[0]), "entry")
	defer ours.Close()
	var st unix.Stat_t
	if err := unix.Fstat(pair[1], &st); err != nil {
		return reason.New(reason.System, "make the entry socket: %w", err)
	}
	k.far = st.Ino
	// The kernel names the sender's pid in our own pid namespace: boxentry
	// becomes the engine, so this is how we know which process the engine is.
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return reason.New(reason.System, "make the entry socket: %w", err)
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		return reason.New(reason.System, "make the entry socket: %w", err)
	}
	k.entry = conn.(*net.UnixConn)
	status, err := k.statusPipe()
	if err != nil {
		return reason.New(reason.System, "make the status pipe: %w", err)
	}
	h.Status = k.pass(status)
	return nil
}

// statusPipe gives bubblewrap's end of the status pipe, which reads as well as
// it writes: bubblewrap would die of SIGPIPE when we are gone, in place of
// ending with the engine's status, or before it has let its first child go on.
func (k *Kit) statusPipe() (*os.File, error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	k.status = os.NewFile(uintptr(pipe[0]), "status")
	defer unix.Close(pipe[1])
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(pipe[0]), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "status"), nil
}

// Release closes our copies of what bubblewrap's process now holds.
func (k *Kit) Release() {
	for _, f := range append(k.Files, k.Below...) {
		f.Close()
	}
	k.Files, k.Below = nil, nil
}

// Close gives everything up; boxentry then reads an end of file and there is
// no box.
func (k *Kit) Close() {
	k.Release()
	if k.entry != nil {
		k.entry.Close()
	}
	if k.status != nil {
		k.status.Close()
	}
	for _, f := range k.Disks {
		f.Close()
	}
	k.holder.Close()
}
