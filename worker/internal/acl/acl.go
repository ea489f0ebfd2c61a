package acl

import (
	"cmp"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Tag says whom an entry is about.
type Tag uint16

// The tags of linux/posix_acl.h.
const (
	UserObj  Tag = 0x01
	User     Tag = 0x02
	GroupObj Tag = 0x04
	Group    Tag = 0x08
	Mask     Tag = 0x10
	Other    Tag = 0x20
)

// Perm is a set of R, W and X.
type Perm uint16

// The three permissions.
const (
	X Perm = 1
	W Perm = 2
	R Perm = 4
)

// noID stands in the entries that are about nobody by number.
const noID = ^uint32(0)

// Entry is one line of a list.
type Entry struct {
	Tag  Tag
	Perm Perm
	ID   uint32
}

// List is a whole list. Without named entries it says what a mode says.
type List []Entry

const (
	version  = 2
	entryLen = 8
	// MaxEntries bounds what is read of one file.
	MaxEntries = 1024
)

var errForm = errors.New("malformed access control list")

// Parse reads the value of an extended attribute.
func Parse(b []byte) (List, error) {
	if len(b) < 4 || (len(b)-4)%entryLen != 0 || (len(b)-4)/entryLen > MaxEntries || binary.LittleEndian.Uint32(b) != version {
		return nil, errForm
	}
	var l List
	for b = b[4:]; len(b) > 0; b = b[entryLen:] {
		e := Entry{Tag(binary.LittleEndian.Uint16(b)), Perm(binary.LittleEndian.Uint16(b[2:])), binary.LittleEndian.Uint32(b[4:])}
		named := e.Tag == User || e.Tag == Group
		if e.Perm > R|W|X || (e.ID == noID) == named || !slices.Contains([]Tag{UserObj, User, GroupObj, Group, Mask, Other}, e.Tag) {
			return nil, errForm
		}
		l = append(l, e)
	}
	return l, nil
}

// Bytes spells the list. The kernel wants its entries in order.
func (l List) Bytes() []byte {
	l = slices.Clone(l)
	slices.SortStableFunc(l, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.ID, b.ID)) })
	b := binary.LittleEndian.AppendUint32(nil, version)
	for _, e := range l {
		b = binary.LittleEndian.AppendUint16(b, uint16(e.Tag))
		b = binary.LittleEndian.AppendUint16(b, uint16(e.Perm))
		b = binary.LittleEndian.AppendUint32(b, e.ID)
	}
	return b
}

// OfMode is the list that a mode stands for.
func OfMode(mode uint32) List {
	return List{{UserObj, Perm(mode >> 6 & 7), noID}, {GroupObj, Perm(mode >> 3 & 7), noID}, {Other, Perm(mode & 7), noID}}
}

// get gives the permissions of a tag; named entries are found by id.
func (l List) get(tag Tag, id uint32) (Perm, bool) {
	for _, e := range l {
		if e.Tag == tag && e.ID == id {
			return e.Perm, true
		}
	}
	return 0, false
}

// With puts an entry in, or in the place of the one about the same. The mask
// of a list with names then lets through what any of them has.
func (l List) With(tag Tag, id uint32, perm Perm) List {
	if tag != User && tag != Group {
		id = noID
	}
	out := slices.DeleteFunc(slices.Clone(l), func(e Entry) bool { return e.Tag == Mask || e.Tag == tag && e.ID == id })
	return append(out, Entry{tag, perm, id}).masked()
}

// Without takes the entry about somebody out.
func (l List) Without(tag Tag, id uint32) List {
	out := slices.DeleteFunc(slices.Clone(l), func(e Entry) bool { return e.Tag == Mask || e.Tag == tag && e.ID == id })
	return out.masked()
}

func (l List) masked() List {
	named, mask := false, Perm(0)
	for _, e := range l {
		named = named || e.Tag == User || e.Tag == Group
		if e.Tag == User || e.Tag == Group || e.Tag == GroupObj {
			mask |= e.Perm
		}
	}
	if named {
		l = append(l, Entry{Mask, mask, noID})
	}
	return l
}

// Named tells whether anybody is named in the list.
func (l List) Named() bool {
	return slices.ContainsFunc(l, func(e Entry) bool { return e.Tag == User || e.Tag == Group })
}

// For gives what a user may do who is in one group, of his own number, alone.
func (l List) For(id, owner, group uint32) Perm {
	mask, masked := l.get(Mask, noID)
	if !masked {
		mask = R | W | X
	}
	if id == owner {
		p, _ := l.get(UserObj, noID)
		return p
	}
	if p, ok := l.get(User, id); ok {
		return p & mask
	}
	if id == group {
		p, _ := l.get(GroupObj, noID)
		return p & mask
	}
	if p, ok := l.get(Group, id); ok {
		return p & mask
	}
	p, _ := l.get(Other, noID)
	return p
}

// Of reads the list of an open file, which O_PATH suffices for; a file without
// one has that of its mode.
func Of(fd int, mode uint32) (List, error) {
	return read(fd, "system.posix_acl_access", OfMode(mode))
}

// DefaultOf reads the list that what is made in an open folder begins with, nil without
// one.
func DefaultOf(fd int) (List, error) { return read(fd, "system.posix_acl_default", nil) }

func read(fd int, name string, none List) (List, error) {
	b := make([]byte, 4+entryLen*MaxEntries)
	n, err := unix.Getxattr(path(fd), name, b)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return none, nil
	}
	if err != nil {
		return nil, err
	}
	return Parse(b[:n])
}

// Set gives an open file a list.
func Set(fd int, l List) error {
	return unix.Setxattr(path(fd), "system.posix_acl_access", l.Bytes(), 0)
}

// SetDefault gives an open folder the list for what is made in it; nil takes
// it away.
func SetDefault(fd int, l List) error {
	if l == nil {
		err := unix.Removexattr(path(fd), "system.posix_acl_default")
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
			return nil
		}
		return err
	}
	return unix.Setxattr(path(fd), "system.posix_acl_default", l.Bytes(), 0)
}

// path reaches a file that is open by O_PATH, which the calls for open files
// do not take.
func path(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// May tells what a user of the machine, who is in one group of his own number alone, may do
// with an open file.
func May(f *os.File, id uint32) (Perm, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	l, err := Of(int(f.Fd()), st.Mode)
	if err != nil {
		return 0, err
	}
	return l.For(id, st.Uid, st.Gid), nil
}
