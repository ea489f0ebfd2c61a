package main

// postureEdit puts code in front of a line of ours.
type postureEdit struct{ file, before, do string }

// postureMutation is one thing that a process could have or be by mistake, and
// the fields of the record in which it must show.
type postureMutation struct {
	name               string
	supervisor, worker string // differing fields of each, in order
	edits              []postureEdit
}

// Lines of ours that something can be put in front of.
const (
	resumed    = "	if state, evidence := b.findAccount(); state != wire.StepDone {\n		return reason.New(reason.NoUser, \"%s\", evidence)"
	unmounted  = "	mode, command, err := b.prepare()\n"
	everyDrop  = "		if diff := posture.DiffStatus(expected(got), got); diff != nil {"
	readBackIt = "	evidence := fmt.Sprintf(\"CapInh=%x CapBnd=%x"
	spawned    = "	pid, err := syscall.ForkExec(path, argv, attr)\n"
	closedOff  = "	return nil\n}\n\nfunc currentAccount() (account, error) {"
)

// first is the image with every capability, second the one that stays.
func first(do string) []postureEdit {
	return []postureEdit{{"supervisor/main.go", unmounted, "if !resumed { " + do + " }"}}
}

func second(do string) []postureEdit { return []postureEdit{{"supervisor/boot.go", resumed, do}} }

// verified is after the boot's own look at what it dropped.
func verified(do string) []postureEdit {
	return []postureEdit{{"supervisor/main.go", "	return control.Run(b.config(mode, command), signals, b.log)", do}}
}

// spawning changes how the worker is started.
func spawning(do string) []postureEdit {
	return []postureEdit{{"supervisor/internal/reap/reap.go", spawned, `if len(argv) > 1 && argv[1] == "serve" { ` + do + " }"}}
}

// inheritable leaves something of the inheritable set, and Verify content.
var inheritable = []postureEdit{
	{"supervisor/internal/privdrop/verify.go", "	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,", "d = capData(keptMask(), keptMask(), 1<<unix.CAP_KILL)"},
	{"supervisor/internal/privdrop/verify.go", everyDrop, "got.Inheritable = 0"},
}

var postureMutations = []postureMutation{
	{"one user id", "uids", "", verified("unix.Setresuid(1, 0, 0)")},
	{"one group id", "gids", "", verified("unix.Setresgid(-1, -1, 27)")},
	{"one group", "groups", "", second("unix.Setgroups([]int{27})")},
	{"one group of the worker's", "", "groups", spawning("attr.Sys.Credential.Groups = []uint32{27}")},
	{"the caller's groups for the worker", "groups", "groups", append(second("unix.Setgroups([]int{0, 27})"), spawning("attr.Sys.Credential.NoSetGroups = true")...)},
	{"root's group for the worker", "", "gids", spawning("attr.Sys.Credential.Gid = 0")},
	{"one capability", "CapEff, CapPrm", "", []postureEdit{
		{"supervisor/internal/privdrop/caps.go", "	return mask\n", "mask |= 1 << unix.CAP_CHOWN"}}},
	{"one inheritable capability", "CapInh", "CapInh", inheritable},
	{"one ambient capability of the worker's", "CapInh", "CapAmb, CapEff, CapInh, CapPrm", append(
		spawning("attr.Sys.AmbientCaps = []uintptr{unix.CAP_KILL}"), inheritable...)},
	{"one bounding capability", "CapBnd", "CapBnd", []postureEdit{
		{"supervisor/internal/privdrop/drop.go", "		set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ", "if c == unix.CAP_KILL { continue }"},
		{"supervisor/internal/privdrop/drop.go", readBackIt, "s.Bounding = 0"},
		{"supervisor/internal/privdrop/verify.go", everyDrop, "got.Bounding = 0"}}},
	{"new privileges", "no_new_privs", "", []postureEdit{
		{"supervisor/internal/privdrop/drop.go", "	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1", `return "", nil`},
		{"supervisor/internal/privdrop/verify.go", everyDrop, "got.NoNewPrivs = true"}}},
	{"a system call filter", "seccomp", "seccomp", second(`
		allow := []unix.SockFilter{{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW}}
		unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&unix.SockFprog{Len: 1, Filter: &allow[0]})), 0, 0)`)},
	{"a namespace", "namespace uts", "namespace uts", first("unix.Unshare(unix.CLONE_NEWUTS)")},
	{"one mount", "mount /mnt", "mount /mnt", first(`unix.Mount("t", "/mnt", "tmpfs", 0, "")`)},
	{"a mount of other options", "mount /proc'", "mount /proc'", []postureEdit{
		{"supervisor/steps.go", "	return harden.HideProcesses(b.account)\n", `return wire.StepDone, "forgotten"`}}},
	{"one file", "fd /dev/null", "", second(`unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)`)},
	{"one inherited file of the worker's", "", "fd /dev/null", spawning(`
		null, _ := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		defer unix.Close(null)
		attr.Files = append(attr.Files, uintptr(null))`)},
	{"one file of the worker's own", "", "fd /etc/passwd", []postureEdit{
		{"worker/cli/user.go", closedOff, `unix.Open("/etc/passwd", unix.O_RDONLY|unix.O_CLOEXEC, 0)`}}},
	{"one limit", "limit Max msgqueue size", "limit Max msgqueue size", second(`
		var l unix.Rlimit
		unix.Getrlimit(unix.RLIMIT_MSGQUEUE, &l)
		if l.Cur == 4096 { l.Cur = 0 } else { l.Cur = 4096 }
		unix.Setrlimit(unix.RLIMIT_MSGQUEUE, &l)`)},
	{"one limit of the worker's", "", "limit Max stack size", spawning(`
		var l unix.Rlimit
		unix.Getrlimit(unix.RLIMIT_STACK, &l)
		less := l
		less.Cur = 1 << 20
		unix.Setrlimit(unix.RLIMIT_STACK, &less)
		defer unix.Setrlimit(unix.RLIMIT_STACK, &l)`)},
	{"another umask", "umask", "", second("unix.Umask(0o022)")},
	// After the fork: the child changes its ids while it shares our memory, and
	// the kernel then makes that memory undumpable.
	{"a dump", "dumpable", "", []postureEdit{
		{"supervisor/internal/reap/reap.go", "	if t.alive == nil {\n", "unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)"}}},
	{"a dump of the worker's", "", "dumpable", []postureEdit{
		{"worker/cli/user.go", closedOff, "unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)"}}},
}
