package boxenv

import (
	"slices"
	"strings"
)

// Verdict is what happens to a name.
type Verdict int

// The verdicts.
const (
	Unlisted   Verdict = iota // no row knows it: dropped
	Pass                      // enters the box as it is
	Refused                   // dropped, whatever a driver declares
	Credential                // the broker's: replaced, or passed and reported
)

func (v Verdict) String() string {
	return [...]string{"unlisted", "pass", "refused", "credential"}[v]
}

// Row decides about a name, or about all names of a pattern.
type Row struct {
	Name    string // one * stands for any characters, none among them
	Engine  string // the engine that the row is for; empty = every one
	Verdict Verdict
	Reason  string
}

// All gives the table in its own order.
func All() []Row { return append([]Row(nil), table...) }

// Decide tells what happens to a name in a box of an engine, and why. extra
// are the names that the driver declares for the engine's MCP servers: they
// pass if no row decides otherwise, because Codex hands such values on as
// variables of its own.
func Decide(name, engine string, extra []string) (Verdict, string) {
	if !wellFormed(name) {
		return Refused, "not a name of a variable"
	}
	for _, row := range table {
		if row.fits(name, engine) {
			return row.Verdict, row.Reason
		}
	}
	if slices.Contains(extra, name) {
		if isCredential(name) {
			return Credential, "declared by the driver, and a credential of another engine"
		}
		return Pass, "declared by the driver for an MCP server"
	}
	return Unlisted, "no row of the table lets it in"
}

// Names sorts the names of an environment by what happens to them.
type Names struct {
	Pass       []string
	Credential []string
	Dropped    []string // refused or unlisted
}

// Filter decides about every name of an environment. Each list is sorted.
func Filter[V any](env map[string]V, engine string, extra []string) Names {
	var names Names
	for name := range env {
		switch verdict, _ := Decide(name, engine, extra); verdict {
		case Pass:
			names.Pass = append(names.Pass, name)
		case Credential:
			names.Credential = append(names.Credential, name)
		default:
			names.Dropped = append(names.Dropped, name)
		}
	}
	slices.Sort(names.Pass)
	slices.Sort(names.Credential)
	slices.Sort(names.Dropped)
	return names
}

// isCredential tells whether a name is one in a box of any engine.
func isCredential(name string) bool {
	return slices.ContainsFunc(table, func(r Row) bool { return r.Verdict == Credential && r.fits(name, r.Engine) })
}

func (r Row) fits(name, engine string) bool {
	if r.Engine != "" && r.Engine != engine {
		return false
	}
	pattern := r.Name
	if r.Verdict == Refused { // a refusal that minds the letter case is none
		pattern, name = strings.ToUpper(pattern), strings.ToUpper(name)
	}
	before, after, wild := strings.Cut(pattern, "*")
	if !wild {
		return name == pattern
	}
	return len(name) >= len(before)+len(after) &&
		strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
}

// wellFormed holds names to what a shell can set. Others (with "=", a line
// break, a byte above 127) have no use but to confuse whoever reads them.
func wellFormed(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c == '_' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if !letter && (i == 0 || c < '0' || '9' < c) {
			return false
		}
	}
	return name != ""
}
