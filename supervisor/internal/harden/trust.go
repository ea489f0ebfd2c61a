package harden

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

// TrustCode checks that nobody but root can replace a program, by its own mode
// or by that of a folder above it.
func TrustCode(programs ...string) (wire.StepState, string) {
	for _, program := range programs {
		for at := program; ; at = filepath.Dir(at) {
			var st unix.Stat_t
			if err := unix.Lstat(at, &st); err != nil {
				return wire.StepFailed, fmt.Sprintf("%s: %v", at, err)
			}
			sticky := st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&unix.S_ISVTX != 0
			if st.Uid != 0 || st.Mode&0o022 != 0 && !sticky || st.Mode&unix.S_IFMT == unix.S_IFLNK {
				return wire.StepFailed, fmt.Sprintf("%s: user %d mode %04o, so others can replace our code", at, st.Uid, st.Mode&0o7777)
			}
			if at == "/" {
				break
			}
		}
	}
	return wire.StepDone, fmt.Sprintf("%d programs and the folders above them are root's alone", len(programs))
}
