package selfcheck

import (
	"bufio"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/worker/internal/box"
)

// keyPrefix begins the key of every segment of shared memory that we make.
// Unlike a file's, its life is nobody's: the next run removes what a killed one
// has left.
const keyPrefix = 0x0b0b_0000

// shareMemory leaves a segment of "another turn". Where there is none, the
// check that looks for it is inconclusive, and no other is.
func (o *outside) shareMemory() error {
	sweepShared()
	for range 16 {
		var b [2]byte
		rand.Read(b[:])
		key := keyPrefix | int(b[0])<<8 | int(b[1])&^1 // the probe's own is beside it
		id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o600)
		if errors.Is(err, unix.EEXIST) {
			continue // another run's
		}
		if err != nil {
			return nil
		}
		o.SharedKey = key
		o.later(func() error { _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); return err })
		return nil
	}
	return nil
}

// sharedMemory tells whether it is still there.
func (o *outside) sharedMemory() error {
	_, err := unix.SysvShmGet(o.SharedKey, 0, 0)
	return err
}

// sweepShared removes segments of our naming and our user whose maker is dead.
func sweepShared() {
	f, err := os.Open("/proc/sysvipc/shm")
	if err != nil {
		return // a kernel without shared memory has none to remove
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() { // key shmid perms size cpid lpid nattch uid …
		var n [8]int
		words := strings.Fields(lines.Text())
		for i := range min(len(n), len(words)) {
			n[i], _ = strconv.Atoi(words[i])
		}
		ours := len(words) > 7 && n[0]&^0xffff == keyPrefix && n[7] == os.Geteuid()
		if ours && n[4] > 0 && unix.Kill(n[4], 0) == unix.ESRCH {
			unix.SysvShmCtl(n[1], unix.IPC_RMID, nil)
		}
	}
}

// lookAtSelf notes of the worker what a box must not show.
func (o *outside) lookAtSelf() error {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		o.CgroupNamed = o.CgroupNamed || len(parts) == 3 && parts[2] != "/"
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return err
	}
	o.noCores = limit.Max == 0
	host, err := os.Hostname()
	o.namesake = host == box.HostName
	return err
}

// openTerminal makes a terminal for the box to be started from: our end of it,
// and its own.
func openTerminal() (ours, theirs *os.File, err error) {
	ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		theirs, err = os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}
