package broker

import "time"

// Kind says what an Event is about.
type Kind string

// The kinds of events.
const (
	Issuing    Kind = "issue"   // a token was made
	Requesting Kind = "request" // a request ended, also a refused one
	Stealing   Kind = "stolen"  // a token was shown on another box's listener
	Revoking   Kind = "revoke"  // a token was ended
	Rotating   Kind = "rotate"  // a grant's key was exchanged
	Failing    Kind = "fault"   // the broker failed on a request
)

// Event is one line for the log. It is made of our own words and of what the
// caller named the box; nothing in it was written by the box or the upstream.
type Event struct {
	Time                   time.Time
	Kind                   Kind
	Box, Bot, Conversation string
	Owner                  string // of a stolen token: the box that it was made for

	Grant    string // a provider of the table, or a loopback server of the spec
	Method   string // a known method, or "other"
	Route    string // the row of the provider's table, never the path
	Code     string // of the refusal, or "client_gone", "upstream_cut"
	Status   int
	Up, Down int64         // bytes of the bodies
	Took     time.Duration // of the whole request
	Upstream time.Duration // until the upstream's response header
	Redacted int64         // times the key was found in the response
	Tokens   int64         // as the response told; counted where a limit wants it
	Stack    string        // of a fault, without values
}

// knownMethods are the ones that an Event may name: a box writes what it likes
// where the method stands.
var knownMethods = map[string]bool{
	"GET": true, "HEAD": true, "POST": true, "PUT": true, "PATCH": true, "DELETE": true,
	"OPTIONS": true, "TRACE": true, "CONNECT": true,
}

func methodName(m string) string {
	if knownMethods[m] {
		return m
	}
	return "other"
}
