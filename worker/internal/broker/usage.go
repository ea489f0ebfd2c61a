package broker

import (
	"slices"
	"strconv"
	"strings"
)

// usage reads the tokens that a response tells, while its bytes pass by. It
// holds no more than a few names and one number, whatever the response's size,
// and changes nothing.
//
// It follows the JSON's own structure, for the text between belongs to the
// model: a "usage" in a tool's arguments counts nothing.
type usage struct {
	sse    bool
	lineAt int  // place in a line of an event stream
	data   bool // the line is a data line

	inString, escaped bool
	text              []byte // of the string or number that is being read
	over              bool   // it was longer than any that we look for
	isKey             bool   // the next string is a name
	key               string
	path              []string // names of the open objects, with a "[" behind an array's
	deep              int      // levels below the ones that path holds

	most map[string]int64 // by name: they grow from event to event
}

const (
	usageDepth = 4
	usageText  = 40
	usageMost  = 1 << 40 // of one name; more is nonsense
)

// usageParents are the places where the vendors put their counts: the names of
// the open objects, the outermost of which has none.
var usageParents = []struct{ path, why string }{
	{".usage", "Anthropic's answer and message_delta; OpenAI's answer and last chat chunk"},
	{".message.usage", "Anthropic's message_start"},
	{".response.usage", "OpenAI's response.completed"},
	{".usageMetadata", "Gemini's answer and each event"},
	{"[..usageMetadata", "Gemini's stream without alt=sse, which is one array"},
}

// usageNames are what is counted. Totals are not: the parts are in every answer.
var usageNames = []struct{ name, why string }{
	{"input_tokens", "Anthropic and OpenAI Responses; the latter's include cached ones"},
	{"output_tokens", "the same"},
	{"cache_creation_input_tokens", "Anthropic counts them beside input_tokens"},
	{"cache_read_input_tokens", "the same"},
	{"prompt_tokens", "OpenAI chat"},
	{"completion_tokens", "the same"},
	{"promptTokenCount", "Gemini"},
	{"candidatesTokenCount", "Gemini"},
	{"thoughtsTokenCount", "Gemini counts them beside candidatesTokenCount"},
	{"toolUsePromptTokenCount", "Gemini"},
}

func newUsage(contentType string) *usage {
	return &usage{
		sse:  strings.HasPrefix(strings.ToLower(contentType), "text/event-stream"),
		most: map[string]int64{},
	}
}

// total is what the response told, and whether it told what was put out: only
// then is it whole.
func (u *usage) total() (tokens int64, whole bool) {
	for name, n := range u.most {
		tokens += n
		whole = whole || strings.HasPrefix(name, "output") || strings.HasPrefix(name, "completion") || strings.HasPrefix(name, "candidates")
	}
	return tokens, whole
}

// read looks at the next bytes of the response.
func (u *usage) read(b []byte) {
	for _, c := range b {
		if u.sse && !u.inData(c) {
			continue
		}
		u.next(c)
	}
}

// inData tells whether c belongs to an event's data.
func (u *usage) inData(c byte) bool {
	if c == '\n' || c == '\r' {
		if u.data {
			u.restart() // one value a line, as all three vendors write it
		}
		u.lineAt, u.data = 0, false
		return false
	}
	const mark = "data:"
	at := u.lineAt
	u.lineAt = min(at+1, len(mark)+1)
	if at < len(mark) {
		if at == 0 {
			u.data = true
		}
		u.data = u.data && c == mark[at]
		return false
	}
	return u.data
}

func (u *usage) restart() {
	u.inString, u.escaped, u.isKey, u.over = false, false, false, false
	u.text, u.path, u.key, u.deep = u.text[:0], u.path[:0], "", 0
}

func (u *usage) next(c byte) {
	if u.inString {
		u.string(c)
		return
	}
	switch {
	case c >= '0' && c <= '9':
		u.keep(c)
		return
	case c == '-' || c == '.' || c == 'e' || c == 'E' || c == '+':
		u.over = true // no count looks like that; letters of true, false and null are none either
		return
	}
	u.number()
	switch c {
	case '"':
		u.inString = true
	case ':':
		u.isKey = false
	case ',':
		u.isKey = u.deep == 0 && len(u.path) > 0 && !strings.HasSuffix(u.path[len(u.path)-1], "[")
	case '{', '[':
		u.enter(c)
	case '}', ']':
		u.leave()
	}
}

func (u *usage) string(c byte) {
	switch {
	case u.escaped:
		u.escaped, u.over = false, true // no name of ours has an escape
	case c == '\\':
		u.escaped = true
	case c != '"':
		u.keep(c)
	default:
		if u.isKey {
			u.key = ""
			if !u.over {
				u.key = string(u.text)
			}
		}
		u.inString, u.text, u.over = false, u.text[:0], false
	}
}

func (u *usage) keep(c byte) {
	if len(u.text) >= usageText {
		u.over = true
		return
	}
	u.text = append(u.text, c)
}

// enter opens an object or an array. The outermost one has no name, unless it
// is an array.
func (u *usage) enter(c byte) {
	if u.deep > 0 || len(u.path) >= usageDepth {
		u.deep++
		return
	}
	name := u.key
	if c == '[' {
		name += "["
	}
	u.path = append(u.path, name)
	u.key, u.isKey = "", c == '{'
}

func (u *usage) leave() {
	switch {
	case u.deep > 0:
		u.deep--
	case len(u.path) > 0:
		u.path = u.path[:len(u.path)-1]
	}
	u.key, u.isKey = "", false
}

// number ends a number, and counts it if it stands where the vendors put theirs.
func (u *usage) number() {
	text, over := u.text, u.over
	u.text, u.over = u.text[:0], false
	if len(text) == 0 || over || u.deep > 0 || u.isKey || !slices.ContainsFunc(usageNames, func(n struct{ name, why string }) bool { return n.name == u.key }) {
		return
	}
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil && u.counts() {
		u.most[u.key] = max(u.most[u.key], min(n, usageMost))
	}
}

// counts tells whether the open object is one of usageParents.
func (u *usage) counts() bool {
	at := strings.Join(u.path, ".")
	for _, p := range usageParents {
		if p.path == at {
			return true
		}
	}
	return false
}
