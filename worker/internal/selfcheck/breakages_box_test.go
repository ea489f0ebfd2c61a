package selfcheck

import "github.com/openmausbot/botbox/testbed/rig"

// The files that are broken.
const (
	planGo     = "worker/internal/box/plan.go"
	argvGo     = "worker/internal/box/argv.go"
	ordersGo   = "boxprobe/boxentry/orders.go"
	landlockGo = "boxprobe/internal/landlock/landlock.go"
	assembleGo = "shared/seccomp/assemble.go"
	scTableGo  = "shared/seccomp/table.go"
	boxenvGo   = "shared/boxenv/boxenv.go"
	prepareGo  = "worker/internal/turn/prepare.go"
	orderGo    = "worker/internal/box/order.go"
	homeGo     = "worker/internal/box/home.go"
	headersGo  = "worker/internal/broker/headers.go"
	brokerGo   = "worker/internal/broker/broker.go"
	judgeGo    = "worker/internal/gate/judge.go"
	dialerGo   = "worker/internal/gate/dialer.go"
)

// ofBoxes are slips in what a box is made of.
var ofBoxes = []breakage{
	{"a read-only folder is bound writable", "W1", []rig.Edit{
		{argvGo, `return []string{"--ro-bind-fd", strconv.Itoa(h.Mounts[m.Dest]), m.Dest}`, `return []string{"--bind-fd", strconv.Itoa(h.Mounts[m.Dest]), m.Dest}`},
	}},
	{"/dev stays writable", "L02", []rig.Edit{
		{orderGo, `	p.add(ROAgain, "", "/dev", "no files among the devices")`, ``},
	}},
	{"the parent of a put-back comes in", "D5", []rig.Edit{
		{planGo, `		p.addAsked(Bind, path, KnownSocket, "asked for, read and write")`, `		p.addAsked(Bind, filepath.Dir(path), KnownSocket, "asked for, read and write")`},
		{planGo, `	"os"
	"slices"`, `	"os"
	"path/filepath"
	"slices"`},
	}},
	{"a read-only put-back can be written", "W1", []rig.Edit{
		{planGo, `		p.addAsked(ROBind, path, AnySocket, "asked for, read-only")`, `		p.addAsked(Bind, path, AnySocket, "asked for, read-only")`},
	}},
	{"all of /sys comes in", "F11", []rig.Edit{
		{planGo, `		p.add(ROBind, f, f, "the machine's CPU count; nothing else of /sys")`, `		p.add(ROBind, "/sys", "/sys", f)`},
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
	{"the HOME has no size", "L02", []rig.Edit{
		{homeGo, `p.addTmpfs(m.Home, homeSize,`, `p.addTmpfs(m.Home, 0,`},
	}},
	{"the machine's /proc comes in", "P1", []rig.Edit{
		{argvGo, `return []string{"--proc", m.Dest}`, `return []string{"--ro-bind", "/proc", m.Dest}`},
	}},
	{"the machine's /dev comes in", "F18", []rig.Edit{
		{argvGo, `return []string{"--dev", m.Dest}`, `return []string{"--dev-bind", "/dev", m.Dest}`},
	}},
	{"one namespace fewer: ipc", "P07", []rig.Edit{
		{planGo, `	{"ipc", "--unshare-ipc", "no shared memory, semaphores or queues of others"},`, ``},
	}},
	{"one namespace fewer: uts", "P07", []rig.Edit{
		{planGo, `	{"uts", "--unshare-uts", "the machine's name stays out"},`, ``},
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
	{"the limit of processes is another number", "L01", []rig.Edit{
		{argvGo, `"nproc="+strconv.Itoa(p.Pids),`, `"nproc="+strconv.Itoa(p.Pids*64),`},
	}},
	{"Landlock without signals", "S16", []rig.Edit{
		{landlockGo, `unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL`, `unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET`},
	}},
	{"Landlock's own row for / is too many", "S15", []rig.Edit{
		{landlockGo, `	{"/dev", onDevice,`, `	{"/", onTree, "all"},
	{"/dev", onDevice,`},
	}},
	{"a plan gives all of / to be written", "S15", []rig.Edit{
		{planGo, `	p.Writable = p.writable()`, `	p.Writable = append(p.writable(), "/")`},
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
	{"a netlink rule is lost", "S12", []rig.Edit{
		{scTableGo, `Condition{Test: NotIn, Arg: 2, Values: []uint32{unix.NETLINK_ROUTE}, If: &Equal{0, unix.AF_NETLINK}}, 0},`, `Condition{Test: NotIn, Arg: 2, Values: []uint32{unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER}, If: &Equal{0, unix.AF_NETLINK}}, 0},`},
	}},
	{"vsock is let through", "N06", []rig.Edit{
		{scTableGo, `[]uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}}, 0},`, `[]uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_VSOCK}}, 0},`},
	}},
}
