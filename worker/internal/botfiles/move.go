package botfiles

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/acl"
)

// Owner is a user with its group.
type Owner struct{ UID, GID uint32 }

// Move is one change of hands.
type Move struct {
	Folder  string // absolute and plain
	Account Owner
	Bot     Owner
	Back    bool // from the bot to the account
}

// Done is what a move has done.
type Done struct {
	Changed  int      `json:"changed"` // files and folders that changed hands
	Warnings []string `json:"warnings"`
}

// Make makes the move.
func (m Move) Make() (Done, error) {
	done := Done{Warnings: []string{}}
	if !m.Back {
		if err := os.Mkdir(m.Folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return done, reason.New(reason.WorkFolder, "make the folder %s: %w", m.Folder, err)
		}
	}
	top, err := openTop(m.Folder)
	if err != nil {
		return done, err
	}
	defer unix.Close(top)
	if err := m.check(top); err != nil {
		return done, err
	}
	err = walk(top, m.Folder, 0, func(e entry) error {
		changed, err := m.give(e)
		done.Changed += changed
		return err
	})
	return done, err
}

// check looks for what cannot change hands, before anything does.
func (m Move) check(top int) error {
	type inode struct{ names, links uint64 }
	linked := map[uint64]inode{}
	first := map[uint64]string{}
	err := walk(top, m.Folder, 0, func(e entry) error {
		who := Owner{e.st.Uid, e.st.Gid}
		if e.st.Uid != m.Account.UID && e.st.Uid != m.Bot.UID || e.st.Gid != m.Account.GID && e.st.Gid != m.Bot.GID {
			return reason.New(reason.BotUserTree, "%s belongs neither to the account nor to the bot, or its group does not (%v in the bot's namespace)", e.path, who)
		}
		switch e.kind() {
		case unix.S_IFCHR, unix.S_IFBLK:
			return reason.New(reason.BotUserTree, "%s is a device", e.path)
		case unix.S_IFLNK:
		default:
			if err := m.checkList(e); err != nil {
				return err
			}
		}
		if e.kind() == unix.S_IFDIR {
			return nil
		}
		if e.st.Nlink > 1 {
			linked[e.st.Ino] = inode{linked[e.st.Ino].names + 1, uint64(e.st.Nlink)}
			first[e.st.Ino] = e.path
		}
		return nil
	})
	if err != nil {
		return err
	}
	for ino, l := range linked {
		if l.names != l.links {
			return reason.New(reason.BotUserTree, "%s has a name outside the folder as well, which would change hands with it", first[ino])
		}
	}
	return nil
}

// checkList refuses a file that names a third user, whom this namespace has no
// number for, and a folder that lets somebody else's rights be inherited: they
// could not be put back.
func (m Move) checkList(e entry) error {
	if _, err := acl.Of(e.fd, e.st.Mode); err != nil {
		return reason.New(reason.BotUserTree, "%s has an access control list that names others", e.path).
			WithHint("take it away: setfacl -b %s", e.path)
	}
	if e.kind() != unix.S_IFDIR {
		return nil
	}
	l, err := acl.DefaultOf(e.fd)
	if err != nil {
		return reason.New(reason.BotUserTree, "read the access control list of %s: %w", e.path, err)
	}
	if l != nil && string(l.Bytes()) != string(m.inherited().Bytes()) {
		return reason.New(reason.BotUserTree, "%s has a default access control list of its own", e.path).
			WithHint("take it away: setfacl -k %s", e.path)
	}
	return nil
}

// inherited is what new files begin with: both of the two may do everything
// that the file's own mode lets a group do, whoever of them made it.
func (m Move) inherited() acl.List {
	return acl.OfMode(0o700).With(acl.User, m.Bot.UID, acl.R|acl.W|acl.X).With(acl.Group, m.Account.GID, acl.R|acl.W|acl.X)
}

// give lets one file change hands.
func (m Move) give(e entry) (int, error) {
	from, to := m.Account, m.Bot
	if m.Back {
		from, to = to, from
	}
	if err := m.setLists(e); err != nil {
		return 0, reason.New(reason.BotUserTree, "set the access control list of %s: %w", e.path, err)
	}
	if e.st.Uid == to.UID && e.st.Gid == to.GID {
		return 0, nil
	}
	if e.st.Uid != from.UID && e.st.Uid != to.UID {
		return 0, reason.New(reason.BotUserTree, "%s was exchanged while the folder changed hands", e.path)
	}
	if err := unix.Fchownat(e.fd, "", int(to.UID), int(to.GID), unix.AT_EMPTY_PATH); err != nil {
		return 0, reason.New(reason.BotUserTree, "give %s away: %w", e.path, err)
	}
	return 1, nil
}

func (m Move) setLists(e entry) error {
	kind := e.kind()
	if kind == unix.S_IFLNK {
		return nil
	}
	l, err := acl.Of(e.fd, e.st.Mode)
	if err != nil {
		return err
	}
	owner := acl.Perm(e.st.Mode >> 6 & 7)
	if m.Back {
		l = l.Without(acl.User, m.Bot.UID).Without(acl.Group, m.Account.GID)
	} else {
		l = l.With(acl.Group, m.Account.GID, owner|acl.R|acl.W)
	}
	if err := acl.Set(e.fd, l); err != nil {
		return err
	}
	if kind != unix.S_IFDIR {
		return nil
	}
	if m.Back {
		return acl.SetDefault(e.fd, nil)
	}
	return acl.SetDefault(e.fd, m.inherited())
}
