package broker

import (
	"encoding/json"
)

// rpcScan finds the JSON-RPC calls in a request's body while its bytes pass. It
// reads no more of a message than its id and its method, for the body goes on
// as it is, and it needs no more memory than those: a body may be long, and
// many clients write the id behind the parameters.
type rpcScan struct {
	calls []rpcCall
	batch bool // the body is an array of messages
	more  bool // there were more calls than we answer

	depth     int
	seen      bool // something other than white space has come
	broken    bool
	inMessage bool
	inString  bool
	escaped   bool
	wantKey   bool // the next string of the message is a name
	key       string
	token     []byte // of the string or scalar that is being read
	over      bool   // it was longer than any that we look for
	now       rpcMessage
}

// rpcCall is a request that waits for an answer.
type rpcCall struct {
	id     json.RawMessage // a string or a number, as the client wrote it
	method string
}

type rpcMessage struct{ id, method []byte }

const (
	rpcTokenMost = 512
	rpcCallsMost = 128
)

// Write never fails.
func (s *rpcScan) Write(p []byte) (int, error) {
	for _, c := range p {
		s.next(c)
	}
	return len(p), nil
}

// whole tells whether one value was read to its end.
func (s *rpcScan) whole() bool { return s.seen && !s.broken && s.depth == 0 && !s.inString }

// atMessage: the next token is a name or a value of the message itself.
func (s *rpcScan) atMessage() bool {
	if s.batch {
		return s.inMessage && s.depth == 2
	}
	return s.inMessage && s.depth == 1
}

func (s *rpcScan) next(c byte) {
	if s.inString {
		s.keep(c)
		switch {
		case s.escaped:
			s.escaped = false
		case c == '\\':
			s.escaped = true
		case c == '"':
			s.inString = false
		}
		return
	}
	switch c {
	case ' ', '\t', '\r', '\n':
		return
	}
	s.seen = true
	switch c {
	case '{', '[':
		s.open(c)
	case '}', ']':
		s.close()
	case ':':
		if s.atMessage() && s.wantKey {
			s.key, s.wantKey = s.text(), false
			s.drop()
		}
	case ',':
		if s.atMessage() {
			s.value()
			s.wantKey = true
		}
	case '"':
		s.inString = true
		s.keep(c)
	default:
		s.keep(c)
	}
}

// keep remembers a byte of a token of the message's own level.
func (s *rpcScan) keep(c byte) {
	if !s.atMessage() {
		return
	}
	if len(s.token) >= rpcTokenMost {
		s.over = true
		return
	}
	s.token = append(s.token, c)
}

func (s *rpcScan) drop() { s.token, s.over = s.token[:0], false }

func (s *rpcScan) open(c byte) {
	if s.atMessage() {
		s.over = true // this value is no scalar
	}
	s.depth++
	switch {
	case s.depth == 1 && c == '[':
		s.batch = true
	case c == '{' && (s.depth == 1 || s.depth == 2 && s.batch):
		s.inMessage, s.wantKey, s.now = true, true, rpcMessage{}
		s.drop()
	}
}

func (s *rpcScan) close() {
	if s.atMessage() {
		s.value()
		s.end()
		s.inMessage = false
	}
	if s.depth--; s.depth < 0 {
		s.broken = true
		s.depth = 0
	}
}

// value takes a value that has ended. Of a name that stands twice the last one
// holds, as in most parsers.
func (s *rpcScan) value() {
	if !s.wantKey {
		var v []byte
		if !s.over {
			v = append(v, s.token...)
		}
		switch s.key {
		case "id":
			s.now.id = v
		case "method":
			s.now.method = v
		}
	}
	s.drop()
}

// end takes a message that has ended: a call has a method and an id.
func (s *rpcScan) end() {
	var method string
	id := s.now.id
	if len(id) == 0 || id[0] != '"' && id[0] != '-' && (id[0] < '0' || id[0] > '9') || !json.Valid(id) ||
		len(s.now.method) == 0 || json.Unmarshal(s.now.method, &method) != nil {
		return
	}
	if len(s.calls) >= rpcCallsMost {
		s.more = true
		return
	}
	s.calls = append(s.calls, rpcCall{id, method})
}

// text gives the string that was read as a name, with its escapes resolved.
func (s *rpcScan) text() string {
	var text string
	if s.over || json.Unmarshal(s.token, &text) != nil {
		return ""
	}
	return text
}
