package posture

import (
	"errors"
	"strconv"
	"strings"
)

// ParentOf reads the fourth field of a process's stat file (proc_pid_stat(5)).
// The second is the program's name, which may hold anything.
func ParentOf(stat string) (int, error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, errors.New("malformed stat file")
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 2 {
		return 0, errors.New("malformed stat file")
	}
	return strconv.Atoi(fields[1])
}
