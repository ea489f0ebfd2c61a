package box

import (
	"cmp"
	"os"
	"slices"

	"github.com/openmausbot/botbox/shared/boxenv"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/seccomp"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// Machine is what a plan has to know of the machine that it is made for.
type Machine struct {
	Home       string            // the home folder of the user that boxes run as
	User       string            // its name
	DataDir    string            // what no box sees, with no symbolic link in it
	DataExists bool              // the data folder is there
	RootDirs   []string          // which of rootNames are folders in /
	RootLinks  map[string]string // which of rootNames are links, and where to
	CPUFiles   []string          // which of cpuFiles are there
	SSHFolders []string          // which of sshFolders are there
	Logins     []string          // which of the engine's login folders are there
	Nameless   bool              // boxes get no host name of their own: see Spawner.Nameless
	Own        []Folder          // the worker's: hidden like the data folder

	// What one spec is about; see For.
	Repos      []Repo     // of the folders that enter the box
	Executable Executable // what its first word is
}

// Folder is one that may not be there yet.
type Folder struct {
	Path   string
	Exists bool
}

// Ports are the loopback ports of an engine's two gates and of its broker, and
// of a browser's one gate.
type Ports struct{ Egress, Broker, Harness, SOCKS int }

// List gives an engine's ports in the order in which boxentry donates its
// listeners.
func (p Ports) List() []int { return []int{p.Egress, p.Broker, p.Harness} }

// MountKind says what stands at a mount's destination.
type MountKind int

const (
	Bind    MountKind = iota // a folder or file of the machine, read and write
	ROBind                   // the same, read-only
	Tmpfs                    // an empty private folder in memory
	Proc                     // the box's own /proc
	Dev                      // a minimal /dev
	Symlink                  // a link in the box's own root
	ROAgain                  // what is mounted there becomes read-only
)

// Mount is one step of building the box's file system.
type Mount struct {
	Kind   MountKind
	Source string // Bind, ROBind: path on the machine; Symlink: its target
	Dest   string
	Size   int64 // Tmpfs: bytes
	Reason string
	Absent reason.Code // of a source that is not there; empty = path_refused
	Nested bool        // stands in a folder that the box can write: see nested.go
	// Sockets are looked for in a folder that a spec names; 0 = in none of ours.
	Sockets SocketRule
	// Program is the source of a ROBind that is one of our own programs; Source
	// then only names it. No path of a spec is one.
	Program  *Program
	Careless Careless
}

// Program is one of our own programs that enters a box.
type Program struct {
	*os.File
	// Copy is its content, for a folder that is closed to the user that boxes
	// run as, such as root's checkout: bubblewrap looks up the path of what is
	// open (--bind-fd), and would not get there. Nil where it would.
	Copy []byte
}

// Plan is a box before it is built: everything that makes it, as data.
type Plan struct {
	ID         string
	Mounts     []Mount
	Namespaces []Namespace
	Env        map[string]string
	Argv       []string
	Cwd        string
	Home       string
	Ports      Ports
	Listen     []int // the ports that boxentry binds and donates
	Spares     Spares
	Debug      *Debug // nil where no debugging port is served outside
	Seccomp    seccomp.Kind
	TTY        bool     // the engine keeps the caller's terminal session
	Pipe       bool     // descriptors 3 and 4 are a browser's debugging pipe and pass through
	Pids       int      // RLIMIT_NPROC, counted in the box's own user namespace
	Nofile     int      // RLIMIT_NOFILE; 0 keeps the caller's
	FileMB     int      // RLIMIT_FSIZE in MiB; 0 keeps the caller's
	DiskFree   bool     // the kit keeps its Disks
	Nameless   bool     // the host name is not the box's own
	Warnings   []string // for the answer
	User       *User    // the box's own; nil = the caller's
	Writable   []string // where Landlock lets the engine write
	// Files are written into folders that are the box's own, before it starts:
	// path → content. See AddFile.
	Files map[string]string
	// Data are files that we make and that the box can only read. Each stands in
	// a folder of the box's own.
	Data  []Data
	Lacks Lacks
}

// Data is one of them.
type Data struct {
	Dest    string
	Content []byte
	Reason  string
}

// Namespace is one kernel namespace that a box does not share.
type Namespace struct{ Name, Flag, Reason string }

// namespaces are the box's own. --unshare-user is always given: bubblewrap
// run by uid 0 would otherwise skip it.
var namespaces = []Namespace{
	{"user", "--unshare-user", "no capability outside the box, whatever happens inside"},
	{"pid", "--unshare-pid", "other turns' processes do not exist for it; it ends whole"},
	{"net", "--unshare-net", "loopback only: no route out but the gates"},
	{"ipc", "--unshare-ipc", "no shared memory, semaphores or queues of others"},
	{"uts", "--unshare-uts", "the machine's name stays out"},
	{"cgroup", "--unshare-cgroup", "the machine's cgroup tree stays out"},
}

// rootNames are the entries of / that a system's programs need: folders are
// bound read-only, links (a merged /usr) are made again.
var rootNames = []struct{ name, reason string }{
	{"usr", "the system's programs"},
	{"etc", "the system's settings"},
	{"opt", "programs installed beside the system's"},
	{"bin", "a split or merged /usr"},
	{"sbin", "a split or merged /usr"},
	{"lib", "a split or merged /usr"},
	{"lib32", "a split or merged /usr"},
	{"lib64", "a split or merged /usr; holds the ELF interpreter"},
	{"libx32", "a split or merged /usr"},
	{"nix", "where all programs are on NixOS"},
}

const mib = 1 << 20

// privateFolders are empty, and sized: a tmpfs without a size may take half of
// the machine's memory.
var privateFolders = []struct {
	path   string
	size   int64
	reason string
}{
	{"/tmp", 1024 * mib, "other turns' files stay out; --tmp-size"},
	{"/var/tmp", 256 * mib, "the same for files that are meant to last"},
	{"/run", 64 * mib, "the machine's sockets stay out"},
	{"/dev/shm", 256 * mib, "shared memory of this box only"},
}

// defaultPids is enough for a parallel build, and ends a fork bomb.
const defaultPids = 4096

// isPrivateWork tells whether a work folder is one of those that every box has
// of its own. The command works there, and nothing of the machine enters.
func isPrivateWork(dir string) bool { return dir == "/tmp" || dir == "/var/tmp" }

// cpuFiles are all that a box sees of /sys: programs built with TCMalloc stop
// themselves at start without them (exit 134).
var cpuFiles = []string{
	"/sys/devices/system/cpu/possible",
	"/sys/devices/system/cpu/online",
}

// EntryPath is where boxentry stands in a box.
const EntryPath = boxenv.EntryPath

// NewPlan turns a spec into a box. It looks at nothing but its arguments; the
// paths it names are opened, and refused again if need be, by Open.
func NewPlan(s spec.Spec, m Machine, ports Ports) (*Plan, error) {
	if err := checkPaths(s, m); err != nil {
		return nil, err
	}
	p := &Plan{
		ID: s.ID, Argv: s.Argv, Cwd: s.Cwd, Home: m.Home, Ports: ports, TTY: s.TTY,
		Namespaces: slices.Clone(namespaces), Seccomp: seccomp.Engine,
		Pids: defaultPids, Nofile: s.Limits.Nofile, FileMB: s.Limits.FileMB, DiskFree: s.Limits.DiskFreeMB > 0,
	}
	if p.Nameless = m.Nameless; p.Nameless {
		p.Warnings = append(p.Warnings, NamelessWarning)
	}
	if s.Limits.Pids > 0 {
		p.Pids = s.Limits.Pids
	}
	if s.Net.Mode == "gated" {
		p.Listen = ports.List()
	}
	if s.Net.Relay {
		p.Spares = Spares{1, 1}
	}
	p.addSystem(m)
	p.addPrivate(s)
	p.addHome(s, m)
	p.Cwd = cmp.Or(p.Cwd, p.Home)
	if isPrivateWork(s.Cwd) {
		p.Warnings = append(p.Warnings, "the work folder "+s.Cwd+" is private in a box: what is written there ends with it")
		s.Cwd = ""
	}
	p.addPutBacks(s)
	p.addRepos(s, m)
	p.addExecutable(s, m)
	if s.Kind == "browser" {
		m.SSHFolders = nil
		if err := p.browse(s, m); err != nil {
			return nil, err
		}
	}
	p.addSSH(m)
	if err := p.hide(m); err != nil {
		return nil, err
	}
	p.add(ROBind, "boxentry", EntryPath, "the first program in the box, gone when the engine starts")
	if err := p.orderMounts(); err != nil {
		return nil, err
	}
	p.closeSSH(m)
	p.closeRoot()
	p.Writable = p.writable()
	return p, nil
}

func (p *Plan) add(kind MountKind, source, dest, reason string) {
	p.Mounts = append(p.Mounts, Mount{Kind: kind, Source: source, Dest: dest, Reason: reason})
}

func (p *Plan) addTmpfs(dest string, size int64, reason string) {
	p.Mounts = append(p.Mounts, Mount{Kind: Tmpfs, Dest: dest, Size: size, Reason: reason})
}

func (p *Plan) addSystem(m Machine) {
	for _, row := range rootNames {
		if target, ok := m.RootLinks[row.name]; ok {
			p.add(Symlink, target, "/"+row.name, row.reason)
		} else if slices.Contains(m.RootDirs, row.name) {
			p.add(ROBind, "/"+row.name, "/"+row.name, row.reason)
		}
	}
	p.add(Proc, "", "/proc", "its own processes only")
	p.add(Dev, "", "/dev", "null, zero, full, random, urandom, tty and its own terminals")
	for _, f := range m.CPUFiles {
		p.add(ROBind, f, f, "the machine's CPU count; nothing else of /sys")
	}
}

func (p *Plan) addPrivate(s spec.Spec) {
	for _, row := range privateFolders {
		size := row.size
		if row.path == "/tmp" && s.Limits.TmpMB > 0 {
			size = int64(s.Limits.TmpMB) * mib
		}
		p.addTmpfs(row.path, size, row.reason)
	}
}

func (p *Plan) addPutBacks(s spec.Spec) {
	for _, path := range s.Paths.RW {
		p.addAsked(Bind, path, KnownSocket, "asked for, read and write")
	}
	for _, path := range s.Paths.RO {
		p.addAsked(ROBind, path, AnySocket, "asked for, read-only")
	}
	for _, path := range s.Paths.ArgvFiles {
		p.Mounts = append(p.Mounts, Mount{Kind: ROBind, Source: path, Dest: path, Sockets: AnySocket,
			Reason: "a file that the command line names", Absent: reason.ArgvFile})
	}
	if dir := s.Paths.PermSocketDir; dir != "" {
		p.add(Bind, dir, dir, "this process's own permission socket")
	}
	switch {
	case s.Cwd == "":
	case s.Profile.Work == "ro":
		p.addAsked(ROBind, s.Cwd, KnownSocket, "the work folder, which this bot may only read")
		p.Mounts[len(p.Mounts)-1].Nested = true // in a HOME that it can write
	default:
		p.addAsked(Bind, s.Cwd, KnownSocket, "the work folder")
	}
}

// addAsked lets in what a spec names, at its own path.
func (p *Plan) addAsked(kind MountKind, path string, sockets SocketRule, reason string) {
	p.Mounts = append(p.Mounts, Mount{Kind: kind, Source: path, Dest: path, Sockets: sockets, Reason: reason})
}
