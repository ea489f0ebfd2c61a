package wire

// Direction says who reads a frame.
type Direction uint8

const (
	ToWorker Direction = iota
	ToSupervisor
)

// Verb names what a frame asks or tells.
type Verb string

const (
	Hello      Verb = "hello"
	Ping       Verb = "ping"
	BoxSignal  Verb = "box.signal"
	UIDLeased  Verb = "uid.leased"
	UIDMapped  Verb = "uid.mapped"
	UIDRefused Verb = "uid.refused"
	Drain      Verb = "drain"

	HelloAck   Verb = "hello.ack"
	Ready      Verb = "ready"
	Pong       Verb = "pong"
	UIDLease   Verb = "uid.lease"
	UIDMap     Verb = "uid.map"
	UIDRelease Verb = "uid.release"
	BoxKill    Verb = "box.kill"
	Drained    Verb = "drained"

	VaultKeep Verb = "vault.keep"
	VaultNote Verb = "vault.note"
	VaultDrop Verb = "vault.drop"
	VaultNext Verb = "vault.next"
	VaultHave Verb = "vault.have"
	VaultEnd  Verb = "vault.end"
	VaultFull Verb = "vault.full"
)

// Form is what a value may look like.
type Form uint8

const (
	Text    Form = iota // 1 to 1,024 bytes of anything but NUL
	Name                // a plain name: no slash, no dot in front
	Number              // 0 to 999999, one spelling each
	Decimal             // seconds with three decimals
	Process             // the number of a process, at most what a kernel gives out
)

// Key is one key of a verb. Every key is required, and they stand in order.
type Key struct {
	Name string
	Form Form
}

// Row is one verb of the closed table.
type Row struct {
	Dir  Direction
	Verb Verb
	Keys []Key
	Why  string
}

// Verbs is the whole vocabulary. No row carries an argv, an environment, a
// path or a free user id: root answers only what it can check by itself.
func Verbs() []Row {
	return []Row{
		{ToWorker, Hello, []Key{{"ver", Name}, {"build", Text}}, "opens the channel; programs of two builds refuse one another"},
		{ToWorker, Ping, nil, "a worker that does not answer is replaced"},
		{ToWorker, BoxSignal, []Key{{"pid", Process}, {"sig", Number}}, "hand a signal of the container on to the engine of the box that this child of the supervisor became"},
		{ToWorker, UIDLeased, []Key{{"lease", Name}, {"uid", Number}}, "answers uid.lease"},
		{ToWorker, UIDMapped, []Key{{"lease", Name}}, "answers uid.map"},
		{ToWorker, UIDRefused, []Key{{"code", Name}}, "answers uid.lease or uid.map where nothing was done: a reason code"},
		{ToWorker, Drain, []Key{{"seconds", Decimal}}, "end every box inside this time"},

		{ToSupervisor, HelloAck, []Key{{"ver", Name}, {"build", Text}}, "answers hello, once"},
		{ToSupervisor, Ready, nil, "boxes can be started, told once"},
		{ToSupervisor, Pong, nil, "answers ping"},
		{ToSupervisor, UIDLease, []Key{{"bot", Name}}, "ask for the Linux user of a bot, for one map"},
		{ToSupervisor, UIDMap, []Key{{"lease", Name}, {"pid", Process}}, "write the map of the fresh user namespace that this child of the worker is in; ends the lease"},
		{ToSupervisor, UIDRelease, []Key{{"lease", Name}}, "give a lease back without a map"},
		{ToSupervisor, BoxKill, []Key{{"lease", Name}}, "kill what runs as a leased user"},
		{ToSupervisor, Drained, nil, "no box is left; the worker exits now"},

		{ToSupervisor, VaultKeep, []Key{{"box", Name}, {"kinds", Name}}, "hold these files of a box until its first process ends"},
		{ToSupervisor, VaultNote, []Key{{"box", Name}, {"text", Text}}, "what the next worker has to know of a box, in place of what was noted before"},
		{ToSupervisor, VaultDrop, []Key{{"box", Name}}, "the box is over: close its files"},
		{ToSupervisor, VaultNext, nil, "give back the files of one more box"},
		{ToWorker, VaultHave, []Key{{"box", Name}, {"kinds", Name}, {"text", Text}}, "answers vault.next with the files of a box"},
		{ToWorker, VaultEnd, nil, "answers vault.next: every box was given back"},
		{ToWorker, VaultFull, []Key{{"box", Name}}, "there is no room for the files of this box: it will not outlive its worker"},
	}
}

// OfUser tells whether the verb is one of those that give a box a Linux user.
func (v Verb) OfUser() bool {
	return v == UIDLease || v == UIDMap || v == UIDRelease || v == BoxKill
}

func lookup(dir Direction, v Verb) (Row, bool) {
	for _, row := range Verbs() {
		if row.Dir == dir && row.Verb == v {
			return row, true
		}
	}
	return Row{}, false
}
