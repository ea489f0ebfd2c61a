package botuser

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Range is the user ids, and the group ids of the same numbers, that bots get.
type Range struct{ First, Last uint32 }

// DefaultRange is free of what distributions and systemd give out, as long as
// no more than three users of the machine have subordinate ids.
var DefaultRange = Range{300000, 365535}

// ParseRange reads FIRST-LAST.
func ParseRange(text string) (Range, error) {
	first, last, ok := strings.Cut(text, "-")
	a, err := strconv.ParseUint(first, 10, 32)
	b, err2 := strconv.ParseUint(last, 10, 32)
	r := Range{uint32(a), uint32(b)}
	// The channel's numbers have six digits.
	if !ok || err != nil || err2 != nil || r.String() != text || r.First > r.Last || r.Last > 999999 {
		return Range{}, errors.New("it is not FIRST-LAST, two numbers up to 999999")
	}
	return r, nil
}

func (r Range) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

func (r Range) holds(id uint32) bool { return r.First <= id && id <= r.Last }

func (r Range) meets(first, last uint64) bool {
	return first <= uint64(r.Last) && uint64(r.First) <= last
}

// taken are the ids that others give out without a line in a file of ours.
var taken = []struct {
	first, last uint64
	whose       string
}{
	{0, 60577, "accounts, and systemd-homed's"},
	{61184, 65519, "systemd's DynamicUser="},
	{65534, 65535, "nobody's"},
	{524288, 1879048191, "systemd's containers"},
}

// Files are the texts of the machine's files of ids.
type Files struct{ Passwd, Group, Subuid, Subgid string }

// MachineFiles reads those of this machine. One that is not there is empty.
func MachineFiles() Files {
	read := func(name string) string {
		text, _ := os.ReadFile(name)
		return string(text)
	}
	return Files{read("/etc/passwd"), read("/etc/group"), read("/etc/subuid"), read("/etc/subgid")}
}

// Check refuses a range that meets ids of somebody else's.
func (r Range) Check(f Files) error {
	for _, t := range taken {
		if r.meets(t.first, t.last) {
			return fmt.Errorf("%s meets %d-%d, which are %s", r, t.first, t.last, t.whose)
		}
	}
	for name, text := range map[string]string{"/etc/passwd": f.Passwd, "/etc/group": f.Group} {
		for line := range strings.Lines(text) {
			fields := strings.Split(line, ":")
			if len(fields) < 3 {
				continue // a comment or NIS's +
			}
			if id, err := strconv.ParseUint(fields[2], 10, 32); err == nil && r.holds(uint32(id)) {
				return fmt.Errorf("%s holds %d, which %s has", r, id, name)
			}
		}
	}
	for name, text := range map[string]string{"/etc/subuid": f.Subuid, "/etc/subgid": f.Subgid} {
		for line := range strings.Lines(text) {
			fields := strings.Split(strings.TrimSpace(line), ":")
			if len(fields) != 3 {
				continue
			}
			first, err := strconv.ParseUint(fields[1], 10, 32)
			count, err2 := strconv.ParseUint(fields[2], 10, 32)
			if err != nil || err2 != nil {
				return fmt.Errorf("%s has a line without numbers", name)
			}
			if count > 0 && r.meets(first, first+count-1) {
				return fmt.Errorf("%s meets %d-%d, which %s gives away", r, first, first+count-1, name)
			}
		}
	}
	return nil
}
