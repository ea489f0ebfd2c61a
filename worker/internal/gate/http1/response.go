package http1

import (
	"bufio"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

type response struct {
	status  int
	reason  string
	fields  Fields
	framing Framing
}

var errResponse = errors.New("the upstream's answer is malformed")

// readResponse reads one head of an answer to a request with this method.
func readResponse(br *bufio.Reader, method string) (*response, error) {
	lines := &lineReader{br, maxHead}
	line, err := lines.next()
	if err != nil {
		return nil, unexpected(err)
	}
	version, rest, _ := strings.Cut(line, " ")
	code, reason, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if err != nil || len(code) != 3 || status < 100 || version != "HTTP/1.1" && version != "HTTP/1.0" {
		return nil, errResponse
	}
	r := &response{status: status, reason: gate.Printable(reason, 200)}
	if r.fields, err = lines.fields(); err != nil {
		return nil, err
	}
	r.framing, err = responseFraming(r, method)
	return r, err
}

// hold takes out what must not reach the client. What ended the body was read
// before.
func (r *response) hold(held func(key string) bool) {
	if held != nil {
		r.fields = slices.DeleteFunc(r.fields, func(f Field) bool { return held(f.Key) })
	}
}

// head writes the answer's head for the client. The fields by which our own
// refusals are known are taken out, or an upstream could forge one
// (smokescreen PR#9).
func (r *response) head(minor int, keep, upgraded bool) []byte {
	b := make([]byte, 0, 1024)
	b = append(b, "HTTP/1.1 "+strconv.Itoa(r.status)+" "+r.reason+"\r\n"...)
	for _, f := range r.fields {
		if !r.fields.EndToEnd(f.Key) || strings.EqualFold(f.Key, gate.ReasonHeader) || strings.EqualFold(f.Key, gate.StatusHeader) {
			continue
		}
		b = append(b, f.Name+": "+f.Value+"\r\n"...)
	}
	switch {
	case upgraded:
		return append(b, "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"...)
	case r.status < 200:
		return append(b, "\r\n"...)
	}
	if minor == 1 || r.framing.Kind != Chunked {
		b = r.framing.appendFields(b)
	}
	if !keep {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...)
}
