// Package secret is the type of everything that must not be printed.
//
// Zone: worker.
//
// Given: provider keys, MCP headers and the values of environment variables,
// by whoever asked for a box.
//
// Authority: none; it holds bytes in the worker's memory.
//
// Refuses: to show itself. Every way in which Go prints, logs or encodes a
// value gives the word that Redacted holds. Reveal is the only door, and a
// test lists the files that may open it.
package secret

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

// Redacted is what a secret prints as.
const Redacted = "[secret]"

// Text is a secret string. The zero value is the empty secret.
//
// The bytes are behind a pointer because fmt calls no method on a field that
// is not exported: it would print the string, but of a pointer it prints the
// address only.
type Text struct{ p *string }

// New wraps s.
func New(s string) Text { return Text{&s} }

// Reveal gives the secret itself.
func (t Text) Reveal() string {
	if t.p == nil {
		return ""
	}
	return *t.p
}

// Empty tells whether there is nothing to hide.
func (t Text) Empty() bool { return t.Reveal() == "" }

// Format covers every verb, also those for which fmt ignores String (%d).
func (t Text) Format(f fmt.State, _ rune) { io.WriteString(f, Redacted) }

func (t Text) String() string               { return Redacted }
func (t Text) GoString() string             { return Redacted }
func (t Text) MarshalJSON() ([]byte, error) { return json.Marshal(Redacted) }
func (t Text) MarshalText() ([]byte, error) { return []byte(Redacted), nil }
func (t Text) LogValue() slog.Value         { return slog.StringValue(Redacted) }
