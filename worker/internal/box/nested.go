package box

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// footing is where a nested mount has to stand: what was there when the plan
// was opened.
type footing struct {
	dest string
	host string // the same place on the machine
	dev  uint64
	ino  uint64
}

// footing looks at the destination of a mount in a folder that the box can
// write, from that folder's own open file. It must be there, or bubblewrap
// would make it in the user's tree, be of the source's kind, and have no link
// on the way, which bubblewrap before 0.12 would follow (CVE-2026-87766).
func (p *Plan) footing(m Mount, files map[string]*os.File) (footing, error) {
	above := p.above(m.Dest)
	if above == nil || files[above.Dest] == nil {
		return footing{}, reason.New(reason.Internal, "%s stands in no folder of the machine", m.Dest)
	}
	rel, err := filepath.Rel(above.Dest, m.Dest)
	if err != nil {
		return footing{}, reason.New(reason.Internal, "%s is not below %s", m.Dest, above.Dest)
	}
	f := footing{dest: m.Dest, host: filepath.Join(above.Source, rel)}
	kind, err := f.look(int(files[above.Dest].Fd()), rel)
	if err != nil {
		return f, reason.New(reason.PathRefused, "nothing can be laid over %s in the box: %w", f.host, err).
			WithHint("it must be there, and no symbolic link")
	}
	if want := kindOf(files[m.Dest]); kind != want {
		return f, reason.New(reason.PathRefused, "nothing can be laid over %s in the box: one is a folder and the other is none", f.host)
	}
	return f, nil
}

// look fills in what stands at a path below dir, and gives its kind.
func (f *footing) look(dir int, rel string) (kind uint32, err error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	if dir != unix.AT_FDCWD {
		how.Resolve |= unix.RESOLVE_BENEATH
	}
	fd, err := unix.Openat2(dir, rel, &how)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	f.dev, f.ino = st.Dev, st.Ino
	return st.Mode & unix.S_IFMT, nil
}

// kindOf is that of an open file; what has none is an empty private folder.
func kindOf(f *os.File) uint32 {
	var st unix.Stat_t
	if f == nil || unix.Fstat(int(f.Fd()), &st) != nil {
		return unix.S_IFDIR
	}
	return st.Mode & unix.S_IFMT
}

// stand tells whether every nested mount is where it was planned, once the box
// is up and before its engine runs: another box that can write the same folder
// might have exchanged something after footing looked.
func stand(feet []footing, pid int) error {
	if len(feet) == 0 {
		return nil
	}
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "mountinfo"))
	if err != nil {
		return reason.New(reason.BoxFailed, "see the box's mounts: %w", err)
	}
	points := mountPoints(string(b))
	for _, f := range feet {
		now := footing{}
		if _, err := now.look(unix.AT_FDCWD, f.host); err != nil || now.dev != f.dev || now.ino != f.ino || !slices.Contains(points, f.dest) {
			return reason.New(reason.PathRefused, "%s was exchanged while the box was built", f.host).
				WithHint("another box that can write it did that: see botbox ps")
		}
	}
	return nil
}

// mountPoints reads the fifth field of each line of a mountinfo.
func mountPoints(mountinfo string) (points []string) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mountinfo) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	return points
}
