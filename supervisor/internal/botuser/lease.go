package botuser

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
)

// MaxOpen is how many leases a worker has open at most. One is open for the
// milliseconds between a user namespace and its map.
const MaxOpen = 64

// Leases are those of one worker.
type Leases struct {
	table   *Table
	account privdrop.Account
	open    map[string]uint32
	given   uint64 // by all workers: no name comes twice
}

// New makes the leases of a table.
func New(table *Table, account privdrop.Account) *Leases {
	return &Leases{table: table, account: account, open: map[string]uint32{}}
}

// Begin turns to a new worker: what its predecessor leased is void.
func (l *Leases) Begin() {
	if l != nil {
		clear(l.open)
	}
}

// Reply is what the worker is told; without a verb, nothing.
type Reply struct {
	Verb wire.Verb
	Keys []string
}

func refused(code reason.Code) Reply {
	return Reply{wire.UIDRefused, []string{"code", string(code)}}
}

// Serve does what one frame of the process worker asks for. An error means
// that this worker is not to be trusted any more, and nothing was done.
func (l *Leases) Serve(worker int, f wire.Frame) (Reply, error) {
	if l == nil {
		return Reply{}, fmt.Errorf("%s is not expected: bots have no users of their own", f.Verb)
	}
	lease := f.Args["lease"]
	uid, isOpen := l.open[lease]
	switch {
	case f.Verb == wire.UIDLease:
		return l.lease(f.Args["bot"])
	case !isOpen:
		return Reply{}, fmt.Errorf("%s of a lease that is not open", f.Verb)
	case f.Verb == wire.UIDMap:
		delete(l.open, lease) // one map, and one attempt
		return l.write(worker, f.Int("pid"), lease, uid)
	case f.Verb == wire.UIDRelease:
		delete(l.open, lease)
	case f.Verb == wire.BoxKill:
		killAll(uid)
	}
	return Reply{}, nil
}

func (l *Leases) lease(bot string) (Reply, error) {
	if len(l.open) >= MaxOpen {
		return Reply{}, errors.New("more leases are open than a worker needs")
	}
	uid, err := l.table.User(bot)
	switch {
	case errors.Is(err, ErrFull):
		return refused(reason.BotUsersFull), nil
	case err != nil:
		return refused(reason.System), nil
	}
	l.given++
	lease := "u" + strconv.FormatUint(l.given, 10)
	l.open[lease] = uid
	return Reply{wire.UIDLeased, []string{"lease", lease, "uid", strconv.FormatUint(uint64(uid), 10)}}, nil
}

func (l *Leases) write(worker, pid int, lease string, uid uint32) (Reply, error) {
	err := writeMaps(worker, pid, l.account, uid)
	var no kernelRefused
	switch {
	case errors.As(err, &no):
		return refused(reason.BotUsersRefused), nil
	case err != nil:
		return Reply{}, fmt.Errorf("uid.map: %w", err)
	}
	return Reply{wire.UIDMapped, []string{"lease", lease}}, nil
}
