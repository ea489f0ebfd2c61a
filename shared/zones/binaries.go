package zones

// Binary is one program and what it may grow to.
type Binary struct {
	Name     string
	Folder   string // of its main package; deps.txt is in it
	Lines    int    // of code in Folder, without tests, comments and blank lines; 0 = no limit
	Packages int    // linked, the standard library's own among them; 0 = no limit
	Bytes    int64  // stripped; 0 = no limit
	Reason   string
}

var binaries = []Binary{
	{"botbox-supervisor", "supervisor", 3_000, 90, 2_700_000, "root's program is one that a reviewer reads in a day; it grows by what nobody but root can do, and else shrinks"},
	{"botbox", "worker", 0, 0, 0, "holds net/http and bbolt; its deps.txt shows what else comes in"},
	{"boxprobe", "boxprobe", 0, 0, 4_000_000, "is bound into a box for every check"},
	{"boxentry", "boxprobe/boxentry", 0, 0, 2_000_000, "is mapped at every start of a box"},
}

// Binaries gives the programs.
func Binaries() []Binary { return append([]Binary(nil), binaries...) }

// Limits of every Go file that is not a test.
const (
	MaxFileLines = 450 // a file that needs a scroll bar has two subjects
	MaxFuncLines = 70  // a function is seen whole
	MaxMainLines = 80  // a program's main.go is its table of contents
)

// BadName is a package name that says nothing about what is in it.
type BadName struct{ Name, Reason string }

var badNames = []BadName{
	{"util", "a heap: everything fits in it"},
	{"utils", "a heap: everything fits in it"},
	{"common", "says who uses it, not what it is"},
	{"helper", "says that it is small, not what it is"},
	{"helpers", "says that it is small, not what it is"},
	{"manager", "every program manages something"},
	{"shared", "the folder is a namespace; each package in it has a name of its own"},
}
