package box

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// machine is what is looked at when a trial box did not stand, and never
// before: a setting that looks bad is no reason while boxes stand. Ubuntu's
// own profile for bubblewrap, for one, takes all capabilities from what runs
// in a box (sandbox-runtime#429), and boxentry needs none.
type machine struct {
	proc     fs.FS                            // /proc
	filtered func(flags int) bool             // a filter of system calls refuses to make such namespaces
	noMount  func() bool                      // a filter refuses mount
	clone    func(unshareflags uintptr) error // what the kernel says to our own program, without bubblewrap
	noPivot  func() bool                      // a filter refuses pivot_root
}

func (p *probe) thisMachine() machine {
	return machine{os.DirFS("/proc"), filtered, mountFiltered, p.clone, p.pivotFiltered}
}

// cause gives the reason why the trial box did not stand with its i-th stage:
// the closest that can be found, or else the stage's own.
func (m machine) cause(i int) error {
	stage, first := stages[i], i == 0
	code := stage.code
	because := func(code reason.Code, why string, args ...any) *reason.Error {
		return reason.New(code, "a trial box with "+stage.what+" could not be built: "+why, args...)
	}
	if first && m.setting("sys/kernel/unprivileged_userns_clone") == "0" {
		return because(reason.UsernsSysctl, "kernel.unprivileged_userns_clone is 0")
	}
	for _, name := range stage.limits {
		if m.setting("sys/user/"+name) == "0" {
			return because(reason.UsernsLimit, "user.%s is 0", name).WithHint("raise it: sysctl -w user.%s=15000", name)
		}
	}
	if m.filtered(stage.flags) || first && m.noMount() {
		return because(reason.UsernsSeccomp, "a filter around this process refuses the system call")
	}
	if masks := m.masks(); code == reason.ProcMasked && len(masks) > 0 {
		return because(code, "%s", strings.Join(masks, ", "))
	}
	if m.setting("sys/kernel/apparmor_restrict_unprivileged_userns") == "1" && !m.confined() {
		return because(reason.UsernsLSM, "kernel.apparmor_restrict_unprivileged_userns is 1, and no profile lets bubblewrap through")
	}
	if !first {
		return reason.New(code, "a trial box with %s could not be built", stage.what)
	}
	var kernel syscall.Errno // anything else is no word of the kernel's: the time is over, say
	switch err := m.clone(0); {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		return because(reason.UsernsLimit, "this user, or a namespace around this one, has none left")
	case errors.As(err, &kernel):
		return because(code, "the kernel refuses one to our own program, too (%v)", kernel)
	}
	if errors.As(m.clone(syscall.CLONE_NEWNS), &kernel) {
		return because(reason.MountRefused, "our own program gets a user namespace, and no mounts in it (%v)", kernel)
	}
	if m.noPivot() {
		return because(reason.UsernsSeccomp, "a filter around this process refuses pivot_root")
	}
	return because(code, "no refusal of the kernel's was found")
}

func (m machine) setting(path string) string {
	b, _ := fs.ReadFile(m.proc, path)
	return strings.TrimSpace(string(b))
}

// confined tells whether an AppArmor profile holds us: a container's, say.
// Then that profile decides, and the setting for the unconfined does not.
func (m machine) confined() bool {
	return strings.HasSuffix(m.setting("self/attr/current"), "(enforce)")
}

// emptyProc are mount points below /proc whose folders are empty for ever, so
// that the kernel lets a box mount a /proc all the same.
var emptyProc = []string{"/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd"}

// masks are why the kernel would show a box more of /proc than we see, which
// it refuses ("mount too revealing").
func (m machine) masks() []string {
	var masks []string
	for _, line := range strings.Split(m.setting("self/mountinfo"), "\n") {
		mount, super, _ := strings.Cut(line, " - ")
		f, s := strings.Fields(mount), strings.Fields(super)
		if len(f) < 6 || len(s) < 3 {
			continue
		}
		switch {
		case f[4] == "/proc" && strings.Contains(s[2], "subset=pid"):
			masks = append(masks, "/proc has processes only (subset=pid)")
		case f[4] == "/proc" && slices.Contains(strings.Split(f[5], ","), "ro"):
			masks = append(masks, "/proc is read-only")
		case strings.HasPrefix(f[4], "/proc/") && !slices.Contains(emptyProc, f[4]):
			masks = append(masks, f[4]+" is covered")
		}
	}
	return masks
}

// filtered asks for namespaces in a way that the kernel always refuses with
// EINVAL before it looks at anything else: the lowest bit is no flag. Another
// answer is a filter's.
func filtered(flags int) bool {
	return flags != 0 && unix.Unshare(flags|1) != unix.EINVAL
}

// mountFiltered does the same with mount, which first reads the target's name.
func mountFiltered() bool {
	_, _, errno := unix.Syscall6(unix.SYS_MOUNT, 0, 0, 0, 0, 0, 0)
	return errno != unix.EFAULT
}

// clone makes a user namespace for our own program, with mounts of its own
// where they are asked for; the error is the kernel's.
func (p *probe) clone(unshareflags uintptr) error {
	return p.inNamespaces(unshareflags, nil, "trial")
}

// pivotFiltered asks for pivot_root where the kernel lets us, and would answer
// that nothing is at the address of the name. Docker's filter has the call for
// nobody, whatever capability he has.
func (p *probe) pivotFiltered() bool {
	return exited(p.inNamespaces(syscall.CLONE_NEWNS, []uintptr{unix.CAP_SYS_ADMIN}, "trial", "pivot_root"))
}

func (p *probe) inNamespaces(unshareflags uintptr, caps []uintptr, args ...string) error {
	file, err := p.entry.open()
	if err != nil {
		return err
	}
	defer func() { file.Close() }()
	if p.entry.Copy != nil { // a file that is open for writing is not run
		writable := file
		file, err = os.Open("/proc/self/fd/" + strconv.Itoa(int(writable.Fd())))
		writable.Close()
		if err != nil {
			return err
		}
	}
	return p.s.inNamespaces(time.Until(p.deadline), file, unshareflags, caps, args...)
}
