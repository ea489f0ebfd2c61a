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
//	listens on the box's ports
//	donate 1 BUILD N  + N listeners  ──────► checks the build, the sender's pid
//	                                         (SCM_CREDENTIALS) and the listeners,
//	                                         serves them
//	execs the engine                 ◄────── go
//
// One packet each way. Until "go" the engine has not run a single instruction;
// an end of file instead of it means that there will be no box.
const donateVersion = "1"

// Go is the worker's whole answer.
const Go = "go"

// MaxDonated bounds the listeners of one box.
const MaxDonated = 8

// Donation is boxentry's packet without its listeners.
type Donation struct {
	Build     string
	Listeners int
}

// ErrDonation is the fault of a packet that boxentry never writes.
var ErrDonation = errors.New("the box's first packet is malformed")

// String gives the packet.
func (d Donation) String() string {
	return strings.Join([]string{"donate", donateVersion, d.Build, strconv.Itoa(d.Listeners)}, " ")
}

// ParseDonation reads a packet. The sender is our own program but runs in the
// box, so nothing in the packet is believed beyond its form.
func ParseDonation(packet string) (Donation, error) {
	words := strings.Split(packet, " ")
	if len(words) != 4 || words[0] != "donate" || words[1] != donateVersion || words[2] == "" {
		return Donation{}, ErrDonation
	}
	n, err := strconv.Atoi(words[3])
	if err != nil || n < 0 || n > MaxDonated || strconv.Itoa(n) != words[3] {
		return Donation{}, ErrDonation
	}
	return Donation{Build: words[2], Listeners: n}, nil
}
