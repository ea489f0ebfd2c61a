package zones

// Module is this module's path.
const Module = "github.com/openmausbot/botbox"

// Zone is one folder with one degree of trust.
type Zone struct {
	Folder string // below the repository's root
	Name   string
	RunsAs string
	Builds string // programs, comma separated; empty = none
	Trust  string // what it may be trusted with
}

var zones = []Zone{
	{"supervisor", "root", "uid 0, after boot with the capabilities that reaping needs only", "botbox-supervisor", "the machine"},
	{"worker", "unprivileged", "maus: five empty capability sets, no_new_privs, not dumpable", "botbox", "keys, tokens, all boxes"},
	{"boxprobe", "in a box", "whatever runs in the box", "boxprobe, boxentry", "nothing"},
	{"shared", "none", "no process of its own", "", "values only: no goroutine, no environment, no command, no connection"},
	{"init", "none", "no process of its own", "", "data only, no Go: how a host starts us"},
	{"testbed", "none", "tests", "standin", "nothing; linked into no program of ours"},
	{"bench", "none", "measurements", "", "nothing; linked into no program of ours"},
}

// Zones gives the table, most trusted first.
func Zones() []Zone { return append([]Zone(nil), zones...) }
