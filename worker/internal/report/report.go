package report

import (
	"fmt"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/worker/internal/box"
)

// Result is one check's outcome.
type Result struct {
	ID      string `json:"id"`
	Layer   string `json:"layer"`
	Verdict string `json:"verdict"` // pass, fail, inconclusive
	MS      int64  `json:"ms"`
	Why     string `json:"why"`
}

// Checks is one run of the self-check.
type Checks struct {
	Profile  string    `json:"profile"`
	Results  []Result  `json:"results"`
	Declared []string  `json:"declared,omitempty"` // under --mutate: what must fail
	At       time.Time `json:"at"`
	Basis    Basis     `json:"basis"`
}

// Passed counts the checks that passed.
func (c Checks) Passed() int { return len(c.Results) - len(c.Failed()) }

// Failed lists the checks that did not pass. One that could not be carried
// out is among them.
func (c Checks) Failed() []string {
	failed := []string{}
	for _, r := range c.Results {
		if r.Verdict != "pass" {
			failed = append(failed, r.ID)
		}
	}
	return failed
}

// Step is one boot step of the supervisor, with the evidence it read back.
type Step struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Evidence string `json:"evidence"`
}

// Brokered says which credentials are not brokered, and what the broker did
// since the database was made.
type Brokered struct {
	Unbrokered  []string `json:"unbrokered"`
	Intercepted []string `json:"intercepted"` // hosts whose TLS a box's gate ended

	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused"`  // of them
	Limited  int64 `json:"limited"`  // of them, over a limit of their grant
	Redacted int64 `json:"redacted"` // answers that held a key
	Stolen   int64 `json:"stolen"`   // times a token came from another box
	Rotated  int64 `json:"rotated"`  // tokens whose grants were given another key

	Audit Audit `json:"audit"`
}

// Audit names the newest line of the audit log: a report that left the machine
// tells whether the log was made anew behind it.
type Audit struct {
	Seq  uint64 `json:"seq"`
	Head string `json:"head"`
}

// Count takes the broker's counters.
func (b *Brokered) Count(counters map[string]uint64) {
	for name, to := range map[string]*int64{
		"broker.requests": &b.Requests, "broker.refused": &b.Refused, "broker.limited": &b.Limited,
		"broker.redacted": &b.Redacted, "broker.stolen": &b.Stolen, "broker.rotated": &b.Rotated,
	} {
		*to = int64(counters[name])
	}
}

// Egress is what the machine's boxes may reach. The address policy and the
// refused names are above it, and a box's own policy can only narrow it.
type Egress struct {
	Allow  []string `json:"allow"`  // patterns of hosts; null is any public host
	Ports  []uint16 `json:"ports"`  // null is any that refuse does not name
	Refuse []uint16 `json:"refuse"` // ports
	Except []string `json:"except"` // ADDR:PORT, each with a warning
}

// Report is the body of GET /api/cloud/box. The first fields are the seed's.
type Report struct {
	Box      string   `json:"box"`
	Reason   *string  `json:"reason"`
	Checks   string   `json:"checks"` // passed/all, "" before the first run
	Failed   []string `json:"failed"`
	Boxed    int64    `json:"boxed"`
	Refused  int64    `json:"refused"`
	Broker   Brokered `json:"broker"`
	Profile  string   `json:"profile,omitempty"`
	Results  []Result `json:"results,omitempty"`
	Declared []string `json:"declared,omitempty"`
	AgeS     *int64   `json:"age_s"`           // of the checks; null before the first run
	Stale    string   `json:"stale,omitempty"` // why the checks tell nothing of the machine as it is now

	Steps    []Step   `json:"steps"`
	Open     int      `json:"open"` // boxes that are running now
	Build    string   `json:"build"`
	Bwrap    string   `json:"bwrap"` // bubblewrap's version
	Kernel   string   `json:"kernel"`
	Landlock int      `json:"landlock"` // the version of this kernel's, 0 = none: boxes lack their second write wall
	Warnings []string `json:"warnings"`

	Egress *Egress `json:"egress,omitempty"` // the machine's policy; null where no worker answers

	Limits map[string]string `json:"limits,omitempty"` // what can bound pids, memory and cpu of a box here
}

// New begins a report with what was found on this machine.
func New(found box.Finding, wanted error, kernel string) Report {
	r := Report{
		Box: "bwrap", Failed: []string{}, Build: wire.Build, Bwrap: found.Version, Kernel: kernel, Landlock: box.Landlock(),
		Steps: []Step{}, Warnings: []string{}, Broker: Brokered{Unbrokered: []string{}, Intercepted: []string{}},
	}
	why := wanted
	if why == nil {
		why = found.Err
	}
	if why != nil {
		code := string(reason.Of(why).Code)
		r.Box, r.Reason = "off", &code
	}
	return r
}

// WithChecks adds a run of the self-check.
func (r Report) WithChecks(c Checks, now time.Time) Report {
	if len(c.Results) == 0 {
		return r
	}
	age := int64(Age(c.At, now).Seconds())
	r.Checks = fmt.Sprintf("%d/%d", c.Passed(), len(c.Results))
	r.Failed, r.Results, r.Declared, r.Profile, r.AgeS = c.Failed(), c.Results, c.Declared, c.Profile, &age
	return r
}
