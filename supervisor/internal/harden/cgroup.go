package harden

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
)

// What we make in a cgroup of version 2 that is ours:
//
//	our own cgroup             D                        root's
//	├─ this program            D/botbox-supervisor      root's
//	└─ the worker's part       D/botbox                 the account makes cgroups in it
//	   ├─ worker and command   D/botbox/botbox-worker   root's, so only we start somebody in it
//	   └─ one for each box     D/botbox/box-NAME        the account's
//
// The kernel moves a process for whoever may write the cgroup.procs of the
// nearest cgroup above both places. For worker and boxes that is D/botbox,
// which the account rules; for us it is D, so nobody else can move us, freeze
// us or bound us. A cgroup with processes in it has no children with limits,
// so both we and the worker sit in leaves.
const (
	ourLeaf    = "botbox-supervisor"
	workerPart = "botbox"
	workerLeaf = workerPart + "/botbox-worker"
)

// shared out are the controllers that the worker has a use for.
var sharedOut = []string{"memory", "pids", "cpu"}

// GiveCgroup gives the account a part of the cgroup tree to rule. It is called
// done when the kernel shows it so and a child of the account was started there.
func GiveCgroup(id privdrop.Account) (wire.StepState, string) {
	at, ok := ownCgroup()
	if !ok {
		return wire.StepAbsent, "no cgroup of version 2 that can be seen"
	}
	on, why := at.judge()
	if why != "" {
		return wire.StepAbsent, "boxes can have no cgroup: " + why
	}
	if err := at.give(on, id); err != nil {
		at.takeBack(on)
		return stateOf(err), err.Error()
	}
	return wire.StepDone, fmt.Sprintf("%s shared out to %s/%s of the account; a child of it started there", strings.Join(on, " "), at.dir, workerPart)
}

// judge gives the controllers that can be shared out, or says why this cgroup
// is not ours to make others in. It only reads.
func (at place) judge() (on []string, why string) {
	has := at.words("cgroup.controllers")
	on = slices.DeleteFunc(slices.Clone(sharedOut), func(c string) bool { return !slices.Contains(has, c) })
	_, err := os.Lstat(at.dir + "/cgroup.type")
	switch highest := errors.Is(err, fs.ErrNotExist); {
	case len(on) == 0:
		return nil, "ours has none of the controllers " + strings.Join(sharedOut, ", ")
	case !at.top && !delegated(at.dir):
		return nil, "ours was not delegated to us"
	case highest && at.ruled(): // the kernel's own threads are in it, always
		return nil, "somebody else makes cgroups on this machine"
	case highest:
		return on, ""
	}
	for _, pid := range at.words("cgroup.procs") {
		if pid != fmt.Sprint(os.Getpid()) {
			return nil, "ours is shared with process " + pid
		}
	}
	return on, ""
}

// ruled tells whether there are cgroups that we did not make.
func (at place) ruled() bool {
	entries, err := os.ReadDir(at.dir)
	return err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.IsDir() && e.Name() != ourLeaf && e.Name() != workerPart
	})
}

func (at place) give(on []string, id privdrop.Account) error {
	for _, name := range []string{ourLeaf, workerPart, workerLeaf} {
		if err := makeGroup(at.dir + "/" + name); err != nil {
			return fmt.Errorf("make the cgroup %s: %w", name, err)
		}
	}
	if err := at.write(ourLeaf+"/cgroup.procs", "0"); err != nil {
		return fmt.Errorf("move into a cgroup of our own: %w", err)
	}
	for _, c := range on { // one by one: a write is taken whole or not at all
		if err := at.write("cgroup.subtree_control", "+"+c); err != nil {
			return fmt.Errorf("share the controller %s out: %w", c, err)
		}
	}
	// The folder is the group's and sticky: whoever makes a cgroup removes it,
	// and nobody else does. No limit of the part itself goes with it.
	folder := at.dir + "/" + workerPart
	if err := errors.Join(os.Chown(folder, 0, int(id.GID)), os.Chmod(folder, 0o775|fs.ModeSticky),
		os.Chown(folder+"/cgroup.procs", int(id.UID), int(id.GID)),
		os.Chown(folder+"/cgroup.subtree_control", int(id.UID), int(id.GID))); err != nil {
		return fmt.Errorf("give the cgroup to the account: %w", err)
	}
	return at.proved(on, id)
}

// makeGroup makes a cgroup, or takes the one of a supervisor before us.
func makeGroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil || st.Uid != 0 {
		return fmt.Errorf("it belongs to user %d, %v", st.Uid, err)
	}
	return os.Chmod(dir, 0o755) // umask 077 holds
}

// proved reads back what give did.
func (at place) proved(on []string, id privdrop.Account) error {
	if now, ok := ownCgroup(); !ok || now.dir != path.Join(at.dir, ourLeaf) {
		return fmt.Errorf("we read back in %s", now.dir)
	}
	part := place{dir: at.dir + "/" + workerPart}
	if has := part.words("cgroup.controllers"); len(has) < len(on) {
		return fmt.Errorf("the account's part reads back with the controllers %s", strings.Join(has, " "))
	}
	for name, uid := range map[string]uint32{"": 0, "/cgroup.procs": id.UID, "/cgroup.subtree_control": id.UID, "/cgroup.kill": 0} {
		var st unix.Stat_t
		if err := unix.Lstat(part.dir+name, &st); err != nil || st.Uid != uid {
			return fmt.Errorf("%s%s reads back of user %d, %v", workerPart, name, st.Uid, err)
		}
	}
	leaf, err := openLeaf(at.dir)
	if err != nil {
		return err
	}
	defer unix.Close(leaf)
	if in, err := enters(id, "/", leaf); err != nil || !in {
		return fmt.Errorf("a child of the account started in its part: %t %v", in, err)
	}
	return nil
}

// takeBack leaves everything as it was found, as far as that goes.
func (at place) takeBack(on []string) {
	unix.Rmdir(at.dir + "/" + workerLeaf)
	unix.Rmdir(at.dir + "/" + workerPart)
	for _, c := range on {
		_ = at.write("cgroup.subtree_control", "-"+c)
	}
	if now, ok := ownCgroup(); ok && now.dir == path.Join(at.dir, ourLeaf) {
		_ = at.write("cgroup.procs", "0")
	}
	unix.Rmdir(at.dir + "/" + ourLeaf)
}

// WorkerCgroup opens the cgroup that the worker is started in. It is for the
// time after a step that was done.
func WorkerCgroup() (int, error) {
	at, ok := ownCgroup()
	if !ok || path.Base(at.dir) != ourLeaf {
		return -1, errors.New("we are no longer in our own cgroup")
	}
	return openLeaf(path.Dir(at.dir))
}

func openLeaf(dir string) (int, error) {
	return unix.Open(dir+"/"+workerLeaf, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}
