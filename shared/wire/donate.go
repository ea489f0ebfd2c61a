package wire

import (
	"errors"
	"strconv"
	"strings"
)

// The entry socket is a SOCK_SEQPACKET pair between the worker and boxentry,
// the first program in a box:
//
//	boxentry                                 worker
//	                                 ◄────── spare V4 V6, before there is a box
//	listens on the box's ports, and makes
//	  the spares that it was told to
//	donate 3 BUILD N S L + N listeners ────► checks the build, the sender's pid
//	  and S spare sockets                    (SCM_CREDENTIALS), the listeners and the
//	                                         spares, serves them, sets limits
//	execs the engine                 ◄────── go FOLDER…, or no CODE TEXT HINT
//
// One packet each way, and in front of them, only where the box has spares, how
// many it makes of either family: bubblewrap's command line, where all other
// orders stand, can be read in the box. A spare is a TCP socket that is neither bound nor
// connected: whoever connects it reaches the box's own loopback. L is the version of the kernel's Landlock, 0 for none,
// and the folders are those that it lets the engine write; without one there
// is no such wall. Until "go" the engine has not run a single instruction; an
// end of file instead of it means that there will be no box. The words of the
// answer end with a NUL each: a path may hold any other byte.
const donateVersion = "3"

// MaxDonated bounds the listeners of one box, and its spares.
const MaxDonated = 32

// Donation is boxentry's packet without its listeners and spares.
type Donation struct {
	Build     string
	Listeners int
	Spares    int
	Landlock  int // the kernel's version of it, 0 = none
}

// ErrDonation is the fault of a packet that boxentry never writes.
var ErrDonation = errors.New("the box's first packet is malformed")

// String gives the packet.
func (d Donation) String() string {
	return strings.Join([]string{"donate", donateVersion, d.Build, strconv.Itoa(d.Listeners), strconv.Itoa(d.Spares), strconv.Itoa(d.Landlock)}, " ")
}

// ParseDonation reads a packet. The sender is our own program but runs in the
// box, so nothing in the packet is believed beyond its form.
func ParseDonation(packet string) (Donation, error) {
	words := strings.Split(packet, " ")
	if len(words) != 6 || words[0] != "donate" || words[1] != donateVersion || words[2] == "" {
		return Donation{}, ErrDonation
	}
	n, okN := count(words[3], MaxDonated)
	s, okS := count(words[4], MaxDonated)
	l, okL := count(words[5], maxLandlock)
	if !okN || !okS || !okL {
		return Donation{}, ErrDonation
	}
	return Donation{Build: words[2], Listeners: n, Spares: s, Landlock: l}, nil
}

// maxLandlock is far beyond the versions that there are.
const maxLandlock = 999

func count(word string, most int) (int, bool) {
	n, err := strconv.Atoi(word)
	return n, err == nil && n >= 0 && n <= most && strconv.Itoa(n) == word
}

// SpareOrder tells boxentry how many spares to make.
func SpareOrder(v4, v6 int) string {
	return "spare " + strconv.Itoa(v4) + " " + strconv.Itoa(v6)
}

// ErrSpareOrder is the fault of an order that the worker never gives.
var ErrSpareOrder = errors.New("the order for spare sockets is malformed")

// IsSpareOrder tells the order from an answer.
func IsSpareOrder(packet string) bool { return strings.HasPrefix(packet, "spare ") }

// ParseSpareOrder reads the order.
func ParseSpareOrder(packet string) (v4, v6 int, err error) {
	words := strings.Split(packet, " ")
	if len(words) != 3 || words[0] != "spare" {
		return 0, 0, ErrSpareOrder
	}
	v4, ok4 := count(words[1], MaxDonated)
	v6, ok6 := count(words[2], MaxDonated)
	if !ok4 || !ok6 || v4+v6 > MaxDonated {
		return 0, 0, ErrSpareOrder
	}
	return v4, v6, nil
}

// Go is the answer that starts the engine, with the folders that Landlock lets
// it write.
func Go(writable []string) string {
	return strings.Join(append([]string{"go"}, writable...), "\x00") + "\x00"
}

// No is the answer that says why there is no box.
func No(r Refusal) string { return "no\x00" + r.Code + "\x00" + r.Text + "\x00" + r.Hint + "\x00" }

// Refusal is the worker's no, in the words of shared/reason.
type Refusal struct{ Code, Text, Hint string }

func (r Refusal) Error() string { return r.Text }

// ErrNoGo is the fault of an answer that the worker never gives; an empty one
// is an end of file.
var ErrNoGo = errors.New("the worker did not say go")

// ParseAnswer reads the worker's answer: the folders of a go, or an error,
// which is a Refusal for a no.
func ParseAnswer(packet string) (writable []string, err error) {
	rest, ended := strings.CutSuffix(packet, "\x00")
	words := strings.Split(rest, "\x00")
	switch {
	case !ended:
		return nil, ErrNoGo
	case words[0] == "go":
		return words[1:], nil
	case words[0] == "no" && len(words) == 4:
		return nil, Refusal{words[1], words[2], words[3]}
	}
	return nil, ErrNoGo
}
