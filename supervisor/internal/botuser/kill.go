package botuser

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/posture"
)

// killRounds bounds the looks for processes that were forked during one.
const killRounds = 16

// killAll kills the processes of a bot's user.
func killAll(uid uint32) {
	for range killRounds {
		if killOnce(int(uid)) == 0 {
			return
		}
	}
}

// killOnce looks at every process once. The pidfd comes before the look, so
// that what is signalled is what was looked at.
func killOnce(uid int) (found int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= 1 {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		text, _ := os.ReadFile("/proc/" + e.Name() + "/status")
		if s, err := posture.ParseStatus(string(text)); err == nil && s.UID == [4]int{uid, uid, uid, uid} {
			if unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil && !zombie(e.Name()) {
				found++
			}
		}
		unix.Close(fd)
	}
	return found
}

func zombie(pid string) bool {
	text, _ := os.ReadFile("/proc/" + pid + "/stat")
	for i := len(text) - 1; i >= 0; i-- {
		if text[i] == ')' {
			return i+2 < len(text) && text[i+2] == 'Z'
		}
	}
	return true // it is gone
}
