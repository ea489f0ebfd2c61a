package privdrop

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

// marker in argv[1] names the fd of the sealed state. It only says where to
// look: what is proved is proved by Verify, so forging it skips nothing.
const marker = "--resume="

const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// Reexec starts this very program again, as the same process, with an empty
// environment and the records in a sealed memfd. It returns only on failure.
// The caller's thread must be the one that called Drop.
func Reexec(records []wire.Record) error {
	fd, err := unix.MemfdCreate("botbox-boot", unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("make a memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "botbox-boot")
	if _, err := f.Write(wire.EncodeRecords(records)); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal the state: %w", err)
	}
	argv := []string{"botbox-supervisor", marker + strconv.Itoa(fd)}
	// The link is the file that runs now, whatever its path has become.
	err = syscall.Exec("/proc/self/exe", argv, nil)
	return fmt.Errorf("execute ourselves again: %w", err)
}

// Resumed tells whether the command line is Reexec's.
func Resumed(args []string) bool {
	return len(args) == 2 && strings.HasPrefix(args[1], marker)
}

// State reads the records behind a command line of Reexec and closes them.
func State(args []string) ([]wire.Record, error) {
	fd, err := strconv.Atoi(strings.TrimPrefix(args[1], marker))
	if err != nil || fd < 3 {
		return nil, errors.New("the marker names no file")
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || got&seals != seals {
		return nil, errors.New("the state is not sealed")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Uid != 0 || st.Size > wire.MaxRecords {
		return nil, errors.New("the state is not root's own")
	}
	b := make([]byte, st.Size)
	if n, err := unix.Pread(fd, b, 0); err != nil || n != len(b) {
		return nil, errors.New("the state cannot be read whole")
	}
	unix.Close(fd)
	return wire.DecodeRecords(b)
}
