package posture

import (
	"fmt"
	"strconv"
	"strings"
)

// Status is what /proc/PID/status tells of one thread's privileges.
type Status struct {
	UID, GID    [4]int // real, effective, saved, file system
	Groups      []int  // supplementary
	Inheritable uint64 // the five capability sets, one bit a capability
	Permitted   uint64
	Effective   uint64
	Bounding    uint64
	Ambient     uint64
	NoNewPrivs  bool
	Seccomp     int // 0 none, 1 strict, 2 filter
	Umask       uint32
}

// ParseStatus reads the text of a status file. Every field must be there.
func ParseStatus(text string) (Status, error) {
	var s Status
	fields := map[string]func(string) error{
		"Uid":        ids(&s.UID),
		"Gid":        ids(&s.GID),
		"Groups":     list(&s.Groups),
		"CapInh":     hex(&s.Inheritable),
		"CapPrm":     hex(&s.Permitted),
		"CapEff":     hex(&s.Effective),
		"CapBnd":     hex(&s.Bounding),
		"CapAmb":     hex(&s.Ambient),
		"NoNewPrivs": flag(&s.NoNewPrivs),
		"Seccomp":    number(&s.Seccomp),
		"Umask":      octal(&s.Umask),
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		read, ok := fields[name]
		if !ok {
			continue
		}
		if err := read(strings.TrimSpace(value)); err != nil {
			return Status{}, fmt.Errorf("status field %s: %w", name, err)
		}
		delete(fields, name)
	}
	for name := range fields {
		return Status{}, fmt.Errorf("the status text lacks %s", name)
	}
	return s, nil
}

func ids(to *[4]int) func(string) error {
	return func(v string) error {
		_, err := fmt.Sscan(v, &to[0], &to[1], &to[2], &to[3])
		return err
	}
}

func list(to *[]int) func(string) error {
	return func(v string) error {
		for _, f := range strings.Fields(v) {
			n, err := strconv.Atoi(f)
			if err != nil {
				return err
			}
			*to = append(*to, n)
		}
		return nil
	}
}

func hex(to *uint64) func(string) error {
	return func(v string) (err error) {
		*to, err = strconv.ParseUint(v, 16, 64)
		return err
	}
}

func flag(to *bool) func(string) error {
	return func(v string) (err error) {
		*to, err = strconv.ParseBool(v)
		return err
	}
}

func number(to *int) func(string) error {
	return func(v string) (err error) {
		*to, err = strconv.Atoi(v)
		return err
	}
}

func octal(to *uint32) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseUint(v, 8, 32)
		*to = uint32(n)
		return err
	}
}
