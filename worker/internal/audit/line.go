package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Entry is what happened.
type Entry struct {
	Time         time.Time `json:"time"`
	Kind         string    `json:"kind"` // request, issue, revoke, rotate, stolen, fault; open = a worker began
	Box          string    `json:"box,omitempty"`
	Owner        string    `json:"owner,omitempty"` // of a stolen token
	Bot          string    `json:"bot,omitempty"`
	Conversation string    `json:"conversation,omitempty"`
	Grant        string    `json:"grant,omitempty"`
	Method       string    `json:"method,omitempty"`
	Route        string    `json:"route,omitempty"` // the row of the provider's table
	Status       int       `json:"status,omitempty"`
	Code         string    `json:"code,omitempty"` // of a refusal, or how it broke off
	Up           int64     `json:"up,omitempty"`   // bytes of the bodies
	Down         int64     `json:"down,omitempty"`
	MicroS       int64     `json:"us,omitempty"`          // of the whole request
	UpstreamUS   int64     `json:"upstream_us,omitempty"` // until the upstream answered
	Redacted     int64     `json:"redacted,omitempty"`
	Tokens       int64     `json:"tokens,omitempty"`
	Lost         uint64    `json:"lost,omitempty"` // lines before this one that the disk did not take
	Torn         int       `json:"torn,omitempty"` // bytes of an unfinished line that were cut off
}

// Line is an entry in its place in the chain.
type Line struct {
	Seq  uint64 `json:"seq"`
	Prev string `json:"prev"` // SHA-256 of the line before, in hex; of nothing: 64 zeros
	Entry
}

// sum is what the next line holds of this one.
type sum [sha256.Size]byte

func (s sum) String() string { return hex.EncodeToString(s[:]) }

// maxLine bounds a line; ours are some 400 bytes.
const maxLine = 16 << 10

// readLine reads what Verify and Open read back: exactly one object of ours.
func readLine(raw []byte) (Line, error) {
	var l Line
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return l, fmt.Errorf("it is no line of ours")
	}
	if _, err := d.Token(); err != io.EOF {
		return l, fmt.Errorf("something follows it")
	}
	return l, nil
}
