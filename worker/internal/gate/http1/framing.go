package http1

import (
	"strconv"
	"strings"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

// Kind is how a message's body is delimited.
type Kind int

// The kinds. Described is an answer without a body that still says how long
// one would be (HEAD, 304).
const (
	None Kind = iota
	Length
	Chunked
	UntilClose
	Described
)

// Framing delimits one body.
type Framing struct {
	Kind   Kind
	Length int64
}

func (f Framing) hasBody() bool {
	return f.Kind == Chunked || f.Kind == UntilClose || f.Length > 0 && f.Kind == Length
}

func (f Framing) appendFields(b []byte) []byte {
	switch f.Kind {
	case Length, Described:
		b = append(b, "Content-Length: "+strconv.FormatInt(f.Length, 10)+"\r\n"...)
	case Chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	return b
}

// requestFraming takes one Content-Length or one "chunked", never both: two
// readings of where a body ends are how requests are smuggled.
func requestFraming(r *Request) (Framing, error) {
	f, err := framing(r.Fields)
	if err == nil && f.Kind == Chunked && r.Minor == 0 {
		return Framing{}, gate.Malformed("HTTP/1.0 has no Transfer-Encoding")
	}
	return f, err
}

func framing(fields Fields) (Framing, error) {
	length, lengths := fields.Get("content-length")
	coding, codings := fields.Get("transfer-encoding")
	switch {
	case lengths+codings == 0:
		return Framing{}, nil
	case lengths+codings > 1:
		return Framing{}, gate.Malformed("the length of the body is given twice")
	case codings == 1 && !strings.EqualFold(coding, "chunked"):
		return Framing{}, &gate.Refusal{Status: 501, Class: "coding", Reason: "a transfer coding other than chunked is not supported", Hint: "Send the body chunked or with a length.", ProxyStatus: "http_request_error"}
	case codings == 1:
		return Framing{Kind: Chunked}, nil
	}
	n, err := strconv.ParseInt(length, 10, 63)
	if err != nil || length[0] < '0' || length[0] > '9' {
		return Framing{}, gate.Malformed("Content-Length is not a number")
	}
	return Framing{Length, n}, nil
}

func responseFraming(r *response, method string) (Framing, error) {
	f, err := framing(r.fields)
	switch {
	case err != nil:
		return f, err
	case r.status < 200 || r.status == 204:
		return Framing{}, nil
	case method == "HEAD" || r.status == 304:
		if f.Kind == Length {
			f.Kind = Described
		} else {
			f = Framing{}
		}
	case f.Kind == None:
		f.Kind = UntilClose
	}
	return f, nil
}
