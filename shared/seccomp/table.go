package seccomp

import "golang.org/x/sys/unix"

// Ceiling is the last call that the table knows of (listns, Linux 6.19). A
// list of refusals fails open on every newer kernel, so what lies above gets
// ENOSYS: what a program hears from an older kernel, and copes with.
const Ceiling = 470

// Calls allowed on purpose, because they look as if they belonged here:
// uprobe and uretprobe (the kernel injects them into traced programs, which
// die when they are refused), chroot (Chrome), ptrace and process_vm_readv
// (debuggers; the box's PID namespace bounds them), seccomp, landlock_*,
// memfd_create, pidfd_open, map_shadow_stack, splice, mknod.
//
// EPERM or ENOSYS is no matter of taste: a program that gets ENOSYS falls back
// to an older call, one that gets EPERM often gives up.
var table = []Row{
	{"mount", 165, 40, unix.EPERM, "", SeedCore, "changes what files the box sees", Condition{}, 0},
	{"umount2", 166, 39, unix.EPERM, "", SeedCore, "would uncover what a mount hides", Condition{}, 0},
	{"pivot_root", 155, 41, unix.EPERM, "", SeedCore, "changes the root of the box", Condition{}, 0},
	{"init_module", 175, 105, unix.EPERM, "", SeedCore, "loads code into the kernel", Condition{}, 0},
	{"finit_module", 313, 273, unix.EPERM, "", SeedCore, "loads code into the kernel", Condition{}, 0},
	{"delete_module", 176, 106, unix.EPERM, "", SeedCore, "takes code out of the kernel", Condition{}, 0},
	{"bpf", 321, 280, unix.EPERM, "", SeedCore, "runs programs in the kernel; its verifier is a steady source of kernel bugs", Condition{}, 0},
	{"perf_event_open", 298, 241, unix.EPERM, "", SeedCore, "observes other programs and the kernel", Condition{}, 0},
	{"userfaultfd", 323, 282, unix.EPERM, "4.3", SeedCore, "stops the kernel at a chosen moment, which makes its races exploitable", Condition{}, 0},
	{"add_key", 248, 217, unix.EPERM, "", SeedCore, "keyrings are not namespaced", Condition{}, 0},
	{"request_key", 249, 218, unix.EPERM, "", SeedCore, "keyrings are not namespaced, and it can start a program as root", Condition{}, 0},
	{"keyctl", 250, 219, unix.EPERM, "", SeedCore, "keyrings are not namespaced: a box reads the session keyring of whoever started it", Condition{}, 0},
	{"open_by_handle_at", 304, 265, unix.EPERM, "", SeedCore, "opens files past every mount", Condition{}, 0},
	{"setns", 308, 268, unix.EPERM, "", SeedCore, "enters another namespace", Condition{}, 0},
	{"kexec_load", 246, 104, unix.EPERM, "", SeedCore, "replaces the kernel", Condition{}, 0},
	{"kexec_file_load", 320, 294, unix.EPERM, "", SeedCore, "replaces the kernel", Condition{}, 0},
	{"reboot", 169, 142, unix.EPERM, "", SeedCore, "stops the machine", Condition{}, 0},
	{"swapon", 167, 224, unix.EPERM, "", SeedCore, "changes the machine's memory", Condition{}, 0},
	{"swapoff", 168, 225, unix.EPERM, "", SeedCore, "changes the machine's memory", Condition{}, 0},
	{"settimeofday", 164, 170, unix.EPERM, "", SeedCore, "sets the machine's clock", Condition{}, 0},
	{"clock_settime", 227, 112, unix.EPERM, "", SeedCore, "sets the machine's clock", Condition{}, 0},
	{"clock_adjtime", 305, 266, unix.EPERM, "", SeedCore, "sets the machine's clock", Condition{}, 0},
	{"adjtimex", 159, 171, unix.EPERM, "", SeedCore, "sets the machine's clock", Condition{}, 0},
	{"iopl", 172, None, unix.EPERM, "", SeedCore, "reaches the machine's I/O ports", Condition{}, 0},
	{"ioperm", 173, None, unix.EPERM, "", SeedCore, "reaches the machine's I/O ports", Condition{}, 0},

	// CVE-2021-41133 was a filter that forgot these. util-linux falls back to
	// mount(2) on ENOSYS.
	{"open_tree", 428, 428, unix.ENOSYS, "5.2", NewMount, "mounts by file descriptor, past a filter that knows mount only", Condition{}, 0},
	{"move_mount", 429, 429, unix.ENOSYS, "5.2", NewMount, "mounts by file descriptor, past a filter that knows mount only", Condition{}, 0},
	{"fsopen", 430, 430, unix.ENOSYS, "5.2", NewMount, "mounts by file descriptor, past a filter that knows mount only", Condition{}, 0},
	{"fsconfig", 431, 431, unix.ENOSYS, "5.2", NewMount, "mounts by file descriptor; heap overflow in it: CVE-2022-0185", Condition{}, 0},
	{"fsmount", 432, 432, unix.ENOSYS, "5.2", NewMount, "mounts by file descriptor, past a filter that knows mount only", Condition{}, 0},
	{"fspick", 433, 433, unix.ENOSYS, "5.2", NewMount, "mounts by file descriptor, past a filter that knows mount only", Condition{}, 0},
	{"mount_setattr", 442, 442, unix.ENOSYS, "5.12", NewMount, "would make a read-only mount writable", Condition{}, 0},
	{"open_tree_attr", 467, 467, unix.ENOSYS, "6.15", NewMount, "open_tree and mount_setattr in one", Condition{}, 0},

	{"statmount", 457, 457, unix.ENOSYS, "6.8", MountList, "tells where the machine's mounts lie; util-linux falls back to mountinfo", Condition{}, 0},
	{"listmount", 458, 458, unix.ENOSYS, "6.8", MountList, "tells where the machine's mounts lie; util-linux falls back to mountinfo", Condition{}, 0},
	{"listns", 470, 470, unix.ENOSYS, "6.19", MountList, "lists namespaces of others", Condition{}, 0},

	// Never KILL: libuv 1.52 and newer calls io_uring_setup at every start and
	// falls back when there is none.
	{"io_uring_setup", 425, 425, unix.ENOSYS, "5.1", IOUring, "a ring makes and connects sockets that no socket rule sees", Condition{}, 0},
	{"io_uring_enter", 426, 426, unix.ENOSYS, "5.1", IOUring, "a ring makes and connects sockets that no socket rule sees", Condition{}, 0},
	{"io_uring_register", 427, 427, unix.ENOSYS, "5.1", IOUring, "a ring makes and connects sockets that no socket rule sees", Condition{}, 0},

	// EPERM would break every program of glibc 2.34 and newer: only ENOSYS makes
	// it fall back to clone.
	{"clone3", 435, 435, unix.ENOSYS, "5.3", Clone3, "its flags lie in memory, so it could make any namespace; glibc falls back to clone", Condition{}, 0},

	{"acct", 163, 89, unix.EPERM, "", NoNeed, "process accounting of the whole machine", Condition{}, 0},
	{"quotactl", 179, 60, unix.EPERM, "", NoNeed, "disk quotas of the machine", Condition{}, 0},
	{"quotactl_fd", 443, 443, unix.EPERM, "5.14", NoNeed, "disk quotas of the machine", Condition{}, 0},
	{"syslog", 103, 116, unix.EPERM, "", NoNeed, "reads the kernel's log, addresses among it", Condition{}, 0},
	{"vhangup", 153, 58, unix.EPERM, "", NoNeed, "hangs up a terminal", Condition{}, 0},
	{"modify_ldt", 154, None, unix.EPERM, "", NoNeed, "segments for 16-bit programs; a source of kernel bugs (wine needs it)", Condition{}, 0},
	{"sethostname", 170, 161, unix.EPERM, "", NoNeed, "renames the machine", Condition{}, 0},
	{"setdomainname", 171, 162, unix.EPERM, "", NoNeed, "renames the machine", Condition{}, 0},
	{"fanotify_init", 300, 262, unix.EPERM, "", NoNeed, "watches file access of others", Condition{}, 0},
	{"kcmp", 312, 272, unix.EPERM, "", NoNeed, "compares kernel addresses; Mesa falls back", Condition{}, 0},
	{"pidfd_getfd", 438, 438, unix.EPERM, "5.6", NoNeed, "takes an open file out of another process", Condition{}, 0},
	{"process_madvise", 440, 440, unix.EPERM, "5.10", NoNeed, "pushes another process's memory out", Condition{}, 0},
	{"move_pages", 279, 239, unix.EPERM, "", NoNeed, "memory placement of other processes", Condition{}, 0},
	{"migrate_pages", 256, 238, unix.EPERM, "", NoNeed, "memory placement of other processes", Condition{}, 0},
	{"mbind", 237, 235, unix.EPERM, "", NoNeed, "memory placement; bugs in its reference counts (numactl and -XX:+UseNUMA need it)", Condition{}, 0},
	{"set_mempolicy", 238, 237, unix.EPERM, "", NoNeed, "memory placement; bugs in its reference counts", Condition{}, 0},
	{"get_mempolicy", 239, 236, unix.EPERM, "", NoNeed, "memory placement; tells about the machine", Condition{}, 0},
	{"set_mempolicy_home_node", 450, 450, unix.EPERM, "5.17", NoNeed, "memory placement; bugs in its reference counts", Condition{}, 0},
	{"lookup_dcookie", 212, 18, unix.EPERM, "", NoNeed, "names files by the kernel's own numbers, for profilers", Condition{}, 0},

	{"nfsservctl", 180, 42, unix.ENOSYS, "", Exotic, "gone since Linux 3.1", Condition{}, 0},
	{"uselib", 134, None, unix.ENOSYS, "", Exotic, "loads libraries of a format that is gone", Condition{}, 0},
	{"ustat", 136, None, unix.ENOSYS, "", Exotic, "replaced by statfs", Condition{}, 0},
	{"sysfs", 139, None, unix.ENOSYS, "", Exotic, "replaced by /proc/filesystems", Condition{}, 0},
	{"_sysctl", 156, None, unix.ENOSYS, "", Exotic, "gone since Linux 5.5", Condition{}, 0},
	{"create_module", 174, None, unix.ENOSYS, "", Exotic, "gone since Linux 2.6", Condition{}, 0},
	{"get_kernel_syms", 177, None, unix.ENOSYS, "", Exotic, "gone since Linux 2.6", Condition{}, 0},
	{"query_module", 178, None, unix.ENOSYS, "", Exotic, "gone since Linux 2.6", Condition{}, 0},
	{"name_to_handle_at", 303, 264, unix.ENOSYS, "", Exotic, "the other half of open_by_handle_at; tells about the file systems below", Condition{}, 0},
	{"memfd_secret", 447, 447, unix.ENOSYS, "5.14", Exotic, "memory that takes itself out of the kernel's map", Condition{}, 0},
	{"lsm_get_self_attr", 459, 459, unix.ENOSYS, "6.8", Exotic, "asks the machine's security modules", Condition{}, 0},
	{"lsm_set_self_attr", 460, 460, unix.ENOSYS, "6.8", Exotic, "asks the machine's security modules", Condition{}, 0},
	{"lsm_list_modules", 461, 461, unix.ENOSYS, "6.8", Exotic, "asks the machine's security modules", Condition{}, 0},

	{"ioctl", 16, 29, unix.EPERM, "", ByArgument, "TIOCSTI and TIOCLINUX type into the terminal that the box was started from (CVE-2017-5226, CVE-2023-28100)",
		Condition{Test: In, Arg: 1, Values: []uint32{unix.TIOCSTI, unix.TIOCLINUX}}, 0},
	{"socket", 41, 198, unix.EAFNOSUPPORT, "", ByArgument, "only unix, IPv4, IPv6 and netlink: AF_VSOCK reaches the hypervisor past every network namespace, the others are rarely audited code",
		Condition{Test: NotIn, Arg: 0, Values: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}}, 0},
	{"socket", 41, 198, unix.EAFNOSUPPORT, "", ByArgument, "of netlink only NETLINK_ROUTE, which lists interfaces: netfilter, xfrm and audit are attack surface",
		Condition{Test: NotIn, Arg: 2, Values: []uint32{unix.NETLINK_ROUTE}, If: &Equal{0, unix.AF_NETLINK}}, 0},
	{"socketpair", 53, 199, unix.EAFNOSUPPORT, "", ByArgument, "only unix sockets come in pairs that anything uses",
		Condition{Test: NotIn, Arg: 0, Values: []uint32{unix.AF_UNIX}}, 0},
	{"clone", 56, 220, unix.EPERM, "", ByArgument, "nested namespaces give capabilities over kernel code that the box otherwise cannot reach (CVE-2022-0185, CVE-2024-1086)",
		Condition{Test: AnyFlag, Arg: 0, Values: []uint32{allNamespaces}}, Engine},
	{"clone", 56, 220, unix.EPERM, "", ByArgument, "Chrome's sandbox needs user, PID and network namespaces and no other",
		Condition{Test: AnyFlag, Arg: 0, Values: []uint32{allNamespaces &^ chromeNamespaces}}, Browser},
	{"unshare", 272, 97, unix.EPERM, "", ByArgument, "nested namespaces give capabilities over kernel code that the box otherwise cannot reach (CVE-2022-0185, CVE-2024-1086)",
		Condition{Test: AnyFlag, Arg: 0, Values: []uint32{allNamespaces | unix.CLONE_NEWTIME}}, Engine},
	{"unshare", 272, 97, unix.EPERM, "", ByArgument, "Chrome's sandbox needs user, PID and network namespaces and no other",
		Condition{Test: AnyFlag, Arg: 0, Values: []uint32{allNamespaces&^chromeNamespaces | unix.CLONE_NEWTIME}}, Browser},
	{"personality", 135, 92, unix.EPERM, "", ByArgument, "old personalities weaken memory protection; kept: the default, 32-bit and 2.6 version strings, and no address randomisation, for gdb",
		Condition{Test: NotIn, Arg: 0, Values: []uint32{0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff}}, 0},
}

// CLONE_NEWTIME is not among them: to clone its bit is part of the signal that
// the child sends at its end. Only unshare and clone3 know it.
const (
	allNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	chromeNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
)
