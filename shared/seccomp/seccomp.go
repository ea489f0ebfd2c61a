package seccomp

import (
	"fmt"
	"runtime"
	"syscall"
)

// Arch is a CPU by Go's name for it.
type Arch string

// The CPUs that we write filters for. Both are little endian.
const (
	AMD64 Arch = "amd64"
	ARM64 Arch = "arm64"
)

// Native gives the CPU that this program runs on, or an error when we have no
// filter for it.
func Native() (Arch, error) {
	switch arch := Arch(runtime.GOARCH); arch {
	case AMD64, ARM64:
		return arch, nil
	default:
		return "", fmt.Errorf("no system-call filter for the CPU %s", arch)
	}
}

// Kind is a kind of box.
type Kind int

// Both kinds refuse the same calls; they differ in nested namespaces. Chrome
// builds its own sandbox from a user, a PID and a network namespace and does
// not start without them. Nothing else in a box needs any.
const (
	Engine  Kind = iota + 1 // no nested namespace at all
	Browser                 // nested user, PID and network namespaces allowed
)

// Group says why a row stands in the table.
type Group string

// The groups, in the order of the table.
const (
	SeedCore   Group = "seed core"   // the seed's list, without the new mount API
	NewMount   Group = "new mount"   // the seed's list: mounting by file descriptor
	MountList  Group = "mount list"  // tells about mounts and namespaces
	IOUring    Group = "io_uring"    // does what other calls do, unseen by a filter
	Clone3     Group = "clone3"      // its flags lie in memory, where no filter looks
	NoNeed     Group = "no need"     // privileged or rare; no engine needs it
	Exotic     Group = "exotic"      // dead, or too new for anything to need it
	ByArgument Group = "by argument" // refused for some arguments only
)

// None stands for "this CPU has no such call".
const None = -1

// Row refuses one system call, or one call with some arguments.
type Row struct {
	Name         string
	AMD64, ARM64 int           // the call's number, or None
	Errno        syscall.Errno // what the caller gets
	Since        string        // the kernel that brought the call; empty = older than 4.0
	Group        Group
	Reason       string
	When         Condition // the zero value refuses always
	Only         Kind      // the kind of box that has the row; zero = both
}

// Number gives the call's number on a CPU, or None.
func (r Row) Number(arch Arch) int {
	if arch == AMD64 {
		return r.AMD64
	}
	return r.ARM64
}

// Test is how an argument is compared.
type Test int

// The tests. Always is the zero value: no argument is looked at.
const (
	Always  Test = iota
	In           // refuse when the argument is one of the values
	NotIn        // refuse when the argument is none of the values
	AnyFlag      // refuse when the argument has a bit of the one value
)

// Condition looks at the low 32 bits of an argument.
type Condition struct {
	Test   Test
	Arg    int // 0 to 5
	Values []uint32
	If     *Equal // the condition holds only if this does, too
}

// Equal asks that the low 32 bits of an argument have one value.
type Equal struct {
	Arg   int
	Value uint32
}

// All gives the table in its own order.
func All() []Row { return append([]Row(nil), table...) }

// Lookup gives the rows of one call; a call that is refused for several
// reasons has several.
func Lookup(name string) []Row {
	var rows []Row
	for _, row := range table {
		if row.Name == name {
			rows = append(rows, row)
		}
	}
	return rows
}

// SeedCalls gives the 34 rows that every box must refuse, whatever its kind.
// The description that we implement names 32 of them and counts two more;
// open_tree_attr and name_to_handle_at complete its mount and its file-handle
// family. Every other call that it can have meant is in the table as well,
// except chroot, which Chrome's sandbox needs.
func SeedCalls() []Row {
	var rows []Row
	for _, row := range table {
		if row.Group == SeedCore || row.Group == NewMount || row.Name == "name_to_handle_at" {
			rows = append(rows, row)
		}
	}
	return rows
}
