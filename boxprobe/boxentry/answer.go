package main

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
)

// maxAnswer bounds the head of the gate's answer; the gate's own has some 300
// bytes.
const maxAnswer = 4 << 10

var (
	errAnswer = errors.New("what listens on the egress gate's port is not the gate")
	errNoEnd  = errors.New("the egress gate closed the connection before its answer ended")
)

// refusal is the gate's no. Its phrase is the one part of an answer that most
// clients of CONNECT show to a person.
type refusal struct {
	status int
	phrase string
}

func (r refusal) Error() string { return r.phrase }

// say ends the program as the field's clients do: policy is final, a limit or
// a far side that is down is worth another try.
func (r refusal) say(target string) int {
	what := "connect " + target + ": " + strings.TrimPrefix(r.phrase, "botbox: ") + " (" + strconv.Itoa(r.status) + ")"
	if r.status == 429 || r.status >= 500 {
		return fail(reason.ExitSystem, what, "", string(reason.System))
	}
	return fail(reason.ExitUsage, what, "outside the box, botbox why host "+target+" says more", string(reason.EgressRefused))
}

// readAnswer reads the head of an answer, and gives what came behind it. A
// head that is not 200 is a refusal; the gate hangs up after it.
func readAnswer(r io.Reader) (early []byte, err error) {
	buf := make([]byte, 0, maxAnswer)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if head, rest, whole := bytes.Cut(buf, []byte("\r\n\r\n")); whole {
			return rest, parseAnswer(string(head))
		}
		switch {
		case len(buf) == cap(buf):
			return nil, errAnswer
		case err == io.EOF:
			return nil, errNoEnd
		case err != nil:
			return nil, err
		}
	}
}

// parseAnswer holds a head to RFC 9112's grammar, without what that lets
// lenient readers accept: a bare CR or LF, a field without a name, a folded
// line. A port that anybody in the box had taken over would not be believed.
func parseAnswer(head string) error {
	lines := strings.Split(head, "\r\n")
	version, rest, _ := strings.Cut(lines[0], " ")
	code, phrase, spaced := strings.Cut(rest, " ")
	status, err := strconv.ParseUint(code, 10, 16)
	if version != "HTTP/1.1" || !spaced || len(code) != 3 || err != nil || status < 200 || !printable(phrase) {
		return errAnswer
	}
	for _, line := range lines[1:] {
		name, _, colon := strings.Cut(line, ":")
		if !colon || name == "" || strings.ContainsAny(name, " \t") || !printable(line) {
			return errAnswer
		}
	}
	if status == 200 {
		return nil
	}
	return refusal{int(status), phrase}
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
