package http1

import (
	"bufio"
	"errors"
	"io"
)

// Answer is the final answer to one request, read whole.
type Answer struct {
	Status int
	Fields Fields
	Body   []byte
	Cut    bool // the body went on after max bytes
}

// ReadAnswer reads the answer to a request with this method, and at most max
// bytes of its body. A body that ends early is an error, one that is too long
// is cut.
func ReadAnswer(from io.Reader, method string, max int) (*Answer, error) {
	br := newReader(from)
	defer freeReader(br)
	for range maxInterim {
		r, err := readResponse(br, method)
		switch {
		case err != nil:
			return nil, err
		case r.status == 101:
			return nil, errResponse
		case r.status >= 200:
			return readBody(br, r, max)
		}
	}
	return nil, errResponse
}

func readBody(br *bufio.Reader, r *response, max int) (*Answer, error) {
	a := &Answer{Status: r.status, Fields: r.fields}
	if !r.framing.hasBody() {
		return a, nil
	}
	var err error
	a.Body, err = io.ReadAll(io.LimitReader(newBody(br, r.framing), int64(max)+1))
	if len(a.Body) > max {
		a.Body, a.Cut = a.Body[:max], true
		return a, nil
	}
	if err != nil {
		return nil, errors.Join(errResponse, err)
	}
	return a, nil
}
