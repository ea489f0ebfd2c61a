package slips

import "github.com/openmausbot/botbox/testbed/rig"

// The files that are broken.
const (
	planGo      = "worker/internal/box/plan.go"
	argvGo      = "worker/internal/box/argv.go"
	ordersGo    = "boxprobe/boxentry/orders.go"
	landlockGo  = "boxprobe/internal/landlock/landlock.go"
	assembleGo  = "shared/seccomp/assemble.go"
	scTableGo   = "shared/seccomp/table.go"
	boxenvGo    = "shared/boxenv/boxenv.go"
	prepareGo   = "worker/internal/turn/prepare.go"
	homeGo      = "worker/internal/box/home.go"
	headersGo   = "worker/internal/broker/headers.go"
	brokerGo    = "worker/internal/broker/broker.go"
	judgeGo     = "worker/internal/gate/judge.go"
	dialerGo    = "worker/internal/gate/dialer.go"
	targetGo    = "worker/internal/gate/harness/target.go"
	proxyGo     = "worker/internal/broker/proxy.go"
	serveGo     = "worker/internal/broker/serve.go"
	openGo      = "worker/internal/box/open.go"
	spawnGo     = "worker/internal/box/spawn.go"
	refusedGo   = "shared/boxenv/refused.go"
	policyGo    = "worker/internal/gate/policy.go"
	addressesGo = "shared/addrpolicy/table.go"
	grantGo     = "worker/internal/broker/grant.go"
	pathsGo     = "worker/internal/broker/target.go"
)

// ofBoxes are slips in what a box is made of.
var ofBoxes = []slip{
	{"a read-only folder is bound writable", "W1", []rig.Edit{
		{argvGo, `return []string{"--ro-bind-fd", strconv.Itoa(h.Mounts[m.Dest]), m.Dest}`, `return []string{"--bind-fd", strconv.Itoa(h.Mounts[m.Dest]), m.Dest}`},
	}},
	{"the parent of a put-back comes in", "D5", []rig.Edit{
		{planGo, `		p.addAsked(Bind, path, KnownSocket, "asked for, read and write")`, `		p.addAsked(Bind, filepath.Dir(path), KnownSocket, "asked for, read and write")`},
		{planGo, `	"os"
	"slices"`, `	"os"
	"path/filepath"
	"slices"`},
	}},
	{"the machine's /var/tmp comes in", "T2", []rig.Edit{
		{planGo, `		p.addTmpfs(row.path, size, row.reason)`, `		if row.path == "/var/tmp" {
			p.add(Bind, "/var/tmp", "/var/tmp", row.reason)
			continue
		}
		p.addTmpfs(row.path, size, row.reason)`},
	}},
	{"/run has no size", "L02", []rig.Edit{
		{planGo, `{"/run", 64 * mib,`, `{"/run", 0,`},
	}},
	{"the machine's /proc comes in", "P1", []rig.Edit{
		{argvGo, `return []string{"--proc", m.Dest}`, `return []string{"--ro-bind", "/proc", m.Dest}`},
	}},
	{"one namespace fewer: cgroup", "P07", []rig.Edit{
		{planGo, `	{"cgroup", "--unshare-cgroup", "the machine's cgroup tree stays out"},`, ``},
	}},
	{"a file is leaked to the engine", "P06", []rig.Edit{
		{ordersGo, `	first := uint(3)`, `	first := uint(64)`},
		{"boxprobe/boxentry/donate.go", `	for _, fd := range append(sockets, o.socket) {
		unix.Close(fd)
	}`, `	unix.FcntlInt(uintptr(o.socket), unix.F_SETFD, 0)`},
	}},
	{"inherited files are not closed", "P06", []rig.Edit{
		{ordersGo, `	if err := unix.CloseRange(first, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return errors.New("cannot close inherited files: " + err.Error())
	}`, `	_ = first`},
	}},
	{"the limit of files is soft", "L03", []rig.Edit{
		{ordersGo, `&syscall.Rlimit{Cur: value, Max: value}`, `&syscall.Rlimit{Cur: value, Max: now.Max}`},
	}},
	{"the limit of processes is forgotten", "L01", []rig.Edit{
		{ordersGo, `		{unix.RLIMIT_NPROC, o.nproc, true},
`, ``},
	}},
	{"Landlock without signals", "S16", []rig.Edit{
		{landlockGo, `unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL`, `unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET`},
	}},
	{"Landlock's own row for / is too many", "S15", []rig.Edit{
		{landlockGo, `	{"/dev", onDevice,`, `	{"/", onTree, "all"},
	{"/dev", onDevice,`},
	}},
	{"a browser's filter for an engine", "S05", []rig.Edit{
		{planGo, `Seccomp: seccomp.Engine,`, `Seccomp: seccomp.Browser,`},
	}},
	{"the last rule of an argument is not reached", "P10", []rig.Edit{
		{assembleGo, `		case i == last:
			next = 1`, `		case i == last:
			next = 0`},
	}},
	{"two rules are swapped: ioctl and socket", "P10", []rig.Edit{
		{scTableGo, `	{"ioctl", 16, 29,`, `	{"ioctl", 41, 29,`},
		{scTableGo, `Condition{Test: NotIn, Arg: 0, Values: []uint32{unix.AF_UNIX}}, 0},`, `Condition{Test: NotIn, Arg: 1, Values: []uint32{unix.AF_UNIX}}, 0},`},
	}},
	{"flags are compared in the argument's high half", "S05", []rig.Edit{
		{assembleGo, `		case c.Test == AnyFlag:
			prog = append(prog, jump(unix.BPF_JSET, value, 0, 1))`, `		case c.Test == AnyFlag:
			prog = []unix.SockFilter{load(offArgs + 8*c.Arg + 4), jump(unix.BPF_JSET, value, 0, 1)}`},
	}},
	{"the data folder is not hidden", "F20", []rig.Edit{
		{homeGo, `	p.addTmpfs(m.DataDir, 64*mib, "the data folder is an empty private folder")`, ``},
	}},
	{"the private HOME is the user's own", "F14", []rig.Edit{
		{homeGo, `		p.addTmpfs(m.Home, homeSize, "an empty private HOME")`, `		p.addAsked(Bind, m.Home, KnownSocket, "an empty private HOME")`},
	}},
	{"the host name is the machine's", "P09", []rig.Edit{
		{argvGo, `args = append(args, "--hostname", HostName)`, ``},
	}},
	{"no --new-session", "P11", []rig.Edit{
		{argvGo, `	if !p.TTY {`, `	if p.TTY {`},
	}},
	{"bubblewrap has the worker's environment", "P05", []rig.Edit{
		{spawnGo, `Env: append([]string{}, k.Env...), Dir: "/",`, `Env: append(os.Environ(), "WORKERS=1"), Dir: "/",`},
	}},
	{"links on the way to a source are followed", "F24", []rig.Edit{
		{openGo, `unix.RESOLVE_NO_SYMLINKS)`, `0)`},
	}},
	{"a socket may be put back", "F24", []rig.Edit{
		{openGo, `	case unix.S_IFSOCK:
		return reason.New(`, `	case unix.S_IFSOCK:
		return nil
	case unix.S_IFIFO:
		return reason.New(`},
	}},
	{"Landlock lets files be made", "S15", []rig.Edit{
		{landlockGo, `		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |`, `		unix.LANDLOCK_ACCESS_FS_MAKE_DIR |`},
	}},
	{"Landlock lets links be made", "S15", []rig.Edit{
		{landlockGo, `unix.LANDLOCK_ACCESS_FS_MAKE_SYM | `, ``},
	}},
	{"a rule is lost: bpf", "S01", []rig.Edit{
		{scTableGo, `	{"bpf", 321, 280, unix.EPERM, "", SeedCore, "runs programs in the kernel; its verifier is a steady source of kernel bugs", Condition{}, 0},
`, ``},
	}},
	{"two rules are swapped: mount and umount2", "S01", []rig.Edit{
		{scTableGo, `{"mount", 165, 40,`, `{"mount", 166, 40,`},
		{scTableGo, `{"umount2", 166, 39,`, `{"umount2", 166, 39,`},
	}},
	{"a rule has another call's number", "S10", []rig.Edit{
		{scTableGo, `{"keyctl", 250, 219,`, `{"keyctl", 101, 219,`},
	}},
	{"personality passes whole", "S13", []rig.Edit{
		{scTableGo, `	{"personality", 135, 92, unix.EPERM, "", ByArgument, "old`, `	{"personality", 334, 92, unix.EPERM, "", ByArgument, "old`},
	}},
}
