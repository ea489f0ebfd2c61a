package privdrop

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// AccountName is the user that everything but the supervisor runs as.
const AccountName = "maus"

// Account is that user as the passwd file has it.
type Account struct {
	UID, GID uint32
	Home     string
}

// FindAccount looks AccountName up in the text of a passwd file. By hand:
// os/user would ask name services, which are other people's code and network.
func FindAccount(passwd string) (Account, error) {
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if f[0] != AccountName {
			continue
		}
		if len(f) != 7 {
			return Account{}, errors.New("its line in /etc/passwd does not have seven fields")
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 31)
		gid, err2 := strconv.ParseUint(f[3], 10, 31)
		if err := errors.Join(err1, err2); err != nil {
			return Account{}, errors.New("its line in /etc/passwd has no numeric ids")
		}
		if uid == 0 || gid == 0 {
			return Account{}, errors.New("it is root's user or group, which sees and owns everything")
		}
		return Account{uint32(uid), uint32(gid), f[5]}, nil
	}
	return Account{}, fmt.Errorf("/etc/passwd has no line for %s", AccountName)
}
