package botuser

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/posture"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
)

// kernelRefused is an end that need not be the worker's fault: its child has
// died, or the kernel gives no such map here.
type kernelRefused struct{ error }

// writeMaps writes the maps of the user namespace that a child of the worker's
// is in: root there is the account, so that what it owns can be given to the
// bot and taken back, and the account's number there is the bot. No box has
// this namespace: bubblewrap makes another in it, in which the bot is alone.
//
// The kernel wants three things of the writer: the namespace owner's effective
// user id, and CAP_SETUID and CAP_SETGID outside. Credentials belong to threads, so
// one thread takes that user for it, and ends with it. The Go runtime starts no
// thread from one that is locked, so nothing inherits what it has.
func writeMaps(worker, pid int, id privdrop.Account, uid uint32) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		err := borrow(id.UID)
		if err == nil {
			err = writeAs(worker, pid, id, uid)
		}
		giveBack()
		done <- err
	}()
	return <-done
}

// borrow makes the calling thread the account's, with two capabilities.
func borrow(uid uint32) error {
	keep := ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
		return kernelRefused{fmt.Errorf("take the account's user id: %w", errno)}
	}
	// That took the effective set away, and left the permitted one.
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return kernelRefused{fmt.Errorf("read the capabilities: %w", err)}
	}
	data[0].Effective, data[1].Effective = 1<<unix.CAP_SETUID|1<<unix.CAP_SETGID, 0
	if err := unix.Capset(&head, &data[0]); err != nil {
		return kernelRefused{fmt.Errorf("keep two capabilities: %w", err)}
	}
	return nil
}

// giveBack makes the thread root's again, with all that it had. It ends now; but
// the Go runtime does not end a process's first thread, it lays it to rest.
func giveBack() {
	keep := ^uintptr(0)
	unix.RawSyscall(unix.SYS_SETRESUID, keep, 0, keep)
}

func writeAs(worker, pid int, id privdrop.Account, uid uint32) error {
	// Everything below is reached through this one folder, which stays this
	// process's when its number is given to another.
	proc, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return kernelRefused{err}
	}
	defer unix.Close(proc)
	stat, err := readAt(proc, "stat")
	if err != nil {
		return kernelRefused{err}
	}
	if parent, err := posture.ParentOf(stat); err != nil || parent != worker {
		return errors.New("the process is no child of the worker")
	}
	if err := isFresh(proc, id.UID); err != nil {
		return err
	}
	// The group's first: nobody there can be the bot before it has the bot's group.
	for _, m := range []struct {
		name         string
		account, bot uint32
	}{{"gid_map", id.GID, uid}, {"uid_map", id.UID, uid}} {
		if err := writeMap(proc, m.name, fmt.Sprintf("0 %d 1\n%d %d 1\n", m.account, m.account, m.bot)); err != nil {
			return err
		}
	}
	return nil
}

// isFresh wants a namespace that the account made, as a child of ours.
func isFresh(proc int, owner uint32) error {
	ns, err := unix.Openat(proc, "ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return errors.New("the user namespace is not the account's") // its owner may look
	}
	if err != nil {
		return kernelRefused{err}
	}
	defer unix.Close(ns)
	parent, err := unix.IoctlRetInt(ns, unix.NS_GET_PARENT)
	if err != nil {
		return errors.New("the user namespace is no child of ours") // EPERM: it is ours, or above
	}
	defer unix.Close(parent)
	var above, ours unix.Stat_t
	if err := errors.Join(unix.Fstat(parent, &above), unix.Stat("/proc/self/ns/user", &ours)); err != nil {
		return kernelRefused{err}
	}
	if above.Dev != ours.Dev || above.Ino != ours.Ino {
		return errors.New("the user namespace is no direct child of ours")
	}
	var uid uint32
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(ns), unix.NS_GET_OWNER_UID, uintptr(unsafe.Pointer(&uid))); errno != 0 {
		return kernelRefused{errno}
	}
	if uid != owner {
		return errors.New("the user namespace belongs to another user")
	}
	return nil
}

// writeMap writes a map that is empty, in one write, and reads it back. The
// file stays the namespace's that the process had when it was opened.
func writeMap(proc int, name, text string) error {
	now, err := readAt(proc, name)
	if err != nil {
		return kernelRefused{err}
	}
	if now != "" {
		return errors.New("the user namespace has a map already")
	}
	fd, err := unix.Openat(proc, name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return kernelRefused{err}
	}
	defer unix.Close(fd)
	if n, err := unix.Write(fd, []byte(text)); err != nil || n != len(text) {
		return kernelRefused{fmt.Errorf("write %s: %w", name, err)}
	}
	now, err = readAt(proc, name)
	if err != nil || strings.Join(strings.Fields(now), " ") != strings.Join(strings.Fields(text), " ") {
		return kernelRefused{fmt.Errorf("%s reads back otherwise", name)}
	}
	return nil
}

func readAt(proc int, name string) (string, error) {
	fd, err := unix.Openat(proc, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}
