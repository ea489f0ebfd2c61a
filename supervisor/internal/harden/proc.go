package harden

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
)

const hidden = "hidepid=invisible"

// procMount is one line of mountinfo with file system type proc.
type procMount struct {
	id      uint64
	device  string // one a superblock, so one a set of options
	point   string
	options string // of the superblock
}

// HideProcesses sets hidepid=invisible on every proc mount that can be reached
// in this mount namespace. Since Linux 5.8 the option belongs to the
// superblock, so a second mount of proc is not covered by the first.
//
// It proves the result twice: with mountinfo, and with a child of the account,
// because mountinfo does not show that members of group 0 see everything.
func HideProcesses(id privdrop.Account) (wire.StepState, string) {
	mounts, err := reachableProc()
	if err != nil {
		return wire.StepFailed, err.Error()
	}
	if len(mounts) == 0 {
		return wire.StepAbsent, "no proc mount"
	}
	for _, m := range mounts {
		if err := hide(m.point); err != nil {
			return stateOf(err), err.Error()
		}
	}
	mounts, err = reachableProc()
	if err != nil {
		return wire.StepFailed, err.Error()
	}
	for _, m := range mounts {
		if !strings.Contains(","+m.options+",", ","+hidden+",") {
			return wire.StepFailed, fmt.Sprintf("proc superblock %s reads back %s", m.device, m.options)
		}
	}
	if err := provedHidden(id); err != nil {
		return wire.StepFailed, err.Error()
	}
	return wire.StepDone, fmt.Sprintf("%s on %d proc mounts; a child of the account sees itself and not us", hidden, len(mounts))
}

// hide uses fsconfig, which changes the superblock only: mount(2) with
// MS_REMOUNT would also reset the mount's own nosuid, nodev and noexec.
func hide(point string) error {
	fd, err := unix.Fspick(unix.AT_FDCWD, point, unix.FSPICK_CLOEXEC|unix.FSPICK_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("pick the proc mount: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.FsconfigSetString(fd, "hidepid", "invisible"); err != nil {
		return fmt.Errorf("set hidepid: %w", err)
	}
	if err := unix.FsconfigReconfigure(fd); err != nil {
		return fmt.Errorf("reconfigure proc: %w", err)
	}
	return nil
}

func provedHidden(id privdrop.Account) error {
	itself, err := enters(id, "/proc/self", nowhere)
	if err != nil {
		return err
	}
	if !itself {
		return errors.New("a child of the account does not even see itself, so the probe shows nothing")
	}
	us, err := enters(id, "/proc/"+strconv.Itoa(os.Getpid()), nowhere)
	if err != nil {
		return err
	}
	if us {
		return errors.New("a child of the account still sees us")
	}
	return nil
}

// reachableProc lists the proc mounts that a path leads to. A mount under
// another one (unshare --mount-proc leaves the host's own /proc there) is out
// of reach, and a step by path would hit the one on top a second time.
func reachableProc() ([]procMount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var reach []procMount
	for _, m := range procMounts(string(text)) {
		var st unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, m.point, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st)
		if err == nil && st.Mnt_id == m.id {
			reach = append(reach, m)
		}
	}
	return reach, nil
}

// procMounts parses mountinfo:
// "22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw,hidepid=invisible".
func procMounts(text string) []procMount {
	var mounts []procMount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 || r[0] != "proc" {
			continue
		}
		id, err := strconv.ParseUint(l[0], 10, 64)
		if err != nil {
			continue
		}
		mounts = append(mounts, procMount{id, l[2], unescape(l[4]), r[2]})
	}
	return mounts
}

// unescape undoes the kernel's octal spelling of blank, tab, newline and \.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
