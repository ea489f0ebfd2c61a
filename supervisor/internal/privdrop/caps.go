package privdrop

import "golang.org/x/sys/unix"

// Cap is a row of the table of kept capabilities.
type Cap struct {
	Bit  int
	Name string
	Why  string
}

// Kept is everything that the supervisor may still do after the drop.
func Kept() []Cap {
	return []Cap{
		{unix.CAP_KILL, "CAP_KILL", "signal the worker and the command, which run as another user"},
		{unix.CAP_SETGID, "CAP_SETGID", "start them with the account's group and no other"},
		{unix.CAP_SETUID, "CAP_SETUID", "start them as the account"},
	}
}

func keptMask() (mask uint64) {
	for _, c := range Kept() {
		mask |= 1 << c.Bit
	}
	return mask
}

// capHeader names the calling thread.
func capHeader() unix.CapUserHeader {
	return unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
}

// capData spells three sets as the kernel wants them: low words, high words.
func capData(effective, permitted, inheritable uint64) [2]unix.CapUserData {
	return [2]unix.CapUserData{
		{Effective: uint32(effective), Permitted: uint32(permitted), Inheritable: uint32(inheritable)},
		{Effective: uint32(effective >> 32), Permitted: uint32(permitted >> 32), Inheritable: uint32(inheritable >> 32)},
	}
}

func capset(effective, permitted, inheritable uint64) error {
	h, d := capHeader(), capData(effective, permitted, inheritable)
	return unix.Capset(&h, &d[0])
}
