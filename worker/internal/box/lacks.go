package box

// Lacks is what one of the self-check's own boxes goes without; the zero value
// lacks nothing. Only a mutation of the self-check's sets a field: NewPlan
// never does, and no spec reaches it (a test looks for both).
type Lacks struct {
	CapDrop   bool     // bubblewrap leaves the engine every capability of its own user namespace
	OwnID     bool     // the engine is uid and gid 0 in its namespace
	CoreLimit bool     // the caller's limit of core files stays
	Parent    bool     // the box outlives who started it
	KeepScore bool     // the engine is as likely to die as its caller when memory is short
	Weakened  []byte   // of system calls, in place of the kind's; none at all when empty and not nil
	Memfd     bool     // bubblewrap's options stand in its command line
	Quiet     []string // and this is what bubblewrap itself is started with as its environment
}

// options are those that take the protection away.
func (l Lacks) options() (words []string) {
	if l.CapDrop {
		words = append(words, "--cap-add", "ALL")
	}
	if l.OwnID {
		words = append(words, "--uid", "0", "--gid", "0")
	}
	return words
}

// Careless is what the self-check takes away of one mount, as Lacks does of a
// whole box.
type Careless struct {
	ByPath    bool // bound by its source's path, which is looked up anew
	Unchecked bool // opened through links, and whatever it is
}
