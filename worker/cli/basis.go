package cli

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/report"
)

// basis is what a self-check of this moment would rest on.
func (s *state) basis() report.Basis {
	return report.Basis{Kernel: kernelRelease(), Bwrap: bwrapIdentity(os.Getenv("PATH"))}
}

// bwrapIdentity tells one bubblewrap from another without starting it: a
// package that is installed anew gives the file another inode and time.
func bwrapIdentity(path string) string {
	name, err := box.FindBwrap(path)
	var st unix.Stat_t
	if err != nil || unix.Stat(name, &st) != nil {
		return ""
	}
	return fmt.Sprintf("%s %d:%d %d bytes %d.%09d", name, st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec)
}
