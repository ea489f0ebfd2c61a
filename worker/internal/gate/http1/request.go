package http1

import (
	"bufio"
	"strings"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

// Request is a request's head, its target exactly as it was sent.
type Request struct {
	Method  string
	Target  string // printable ASCII without spaces
	Minor   int    // HTTP/1.Minor: 0 or 1
	Fields  Fields
	Framing Framing
}

// ReadRequest reads one head. The error is a *gate.Refusal when the grammar is
// broken, io.EOF when no byte came, and the connection's own error otherwise.
func ReadRequest(br *bufio.Reader) (*Request, error) {
	lines := &lineReader{br, maxHead}
	line, err := lines.next()
	if err != nil {
		return nil, err
	}
	r, err := parseRequestLine(line)
	if err != nil {
		return nil, err
	}
	if r.Fields, err = lines.fields(); err != nil {
		return nil, err
	}
	if _, hosts := r.Fields.Get("host"); hosts > 1 || hosts == 0 && r.Minor == 1 && r.Method != "CONNECT" {
		return nil, gate.Malformed("there must be exactly one Host field")
	}
	if r.Framing, err = requestFraming(r); err != nil {
		return nil, err
	}
	if v, n := r.Fields.Get("expect"); n > 0 && !strings.EqualFold(v, "100-continue") {
		return nil, gate.Malformed("Expect has a value other than 100-continue")
	}
	return r, nil
}

func parseRequestLine(line string) (*Request, error) {
	method, rest, ok1 := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok1 || !ok2 || !methodName(method) || !visible(target) {
		return nil, gate.Malformed("the request line is malformed")
	}
	switch {
	case version == "HTTP/1.1":
		return &Request{Method: method, Target: target, Minor: 1}, nil
	case version == "HTTP/1.0":
		return &Request{Method: method, Target: target}, nil
	case len(version) == 8 && strings.HasPrefix(version, "HTTP/"):
		return nil, &gate.Refusal{Status: 505, Class: "malformed", Reason: "only HTTP/1.1 and HTTP/1.0 are spoken here", Hint: "Use HTTP/1.1 to the proxy.", ProxyStatus: "http_request_error"}
	}
	return nil, gate.Malformed("the request line is malformed")
}

// methodName takes upper-case names only: methods are case-sensitive, and an
// upstream that reads "connect" as CONNECT would see another request.
func methodName(s string) bool {
	for i := 0; i < len(s); i++ {
		if (s[i] < 'A' || s[i] > 'Z') && s[i] != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 20
}

func visible(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// Expects tells whether the client waits for a 100 before it sends the body.
func (r *Request) Expects() bool {
	_, n := r.Fields.Get("expect")
	return n > 0 && r.Minor == 1 && r.Framing.hasBody()
}

// keepAlive tells whether the client will send another request. HTTP/1.0
// clients that ask for it are not worth a second rule.
func (r *Request) keepAlive() bool {
	return r.Minor == 1 && !r.Fields.Lists("connection", "close") && !r.Fields.Lists("proxy-connection", "close")
}

// Websocket tells whether the client asks for the one upgrade that may pass.
func (r *Request) Websocket() bool {
	v, n := r.Fields.Get("upgrade")
	return n == 1 && strings.EqualFold(v, "websocket") && r.Fields.Lists("connection", "upgrade") &&
		r.Method == "GET" && r.Minor == 1 && !r.Framing.hasBody()
}

// Head writes the head for the upstream: the method, the target's bytes as
// they are given, the gate's own Host, the end-to-end fields that drop does
// not name, the framing that was read. Our own fields come after the removal,
// or a client's Connection field could delete them (golang/go#50580).
func (r *Request) Head(target, host string, drop func(key string) bool, upgrade bool) []byte {
	b := make([]byte, 0, 1024)
	b = append(b, r.Method+" "+target+" HTTP/1.1\r\nHost: "+host+"\r\n"...)
	for _, f := range r.Fields {
		if f.Key == "host" || !r.Fields.EndToEnd(f.Key) || drop(f.Key) || f.Key == "expect" && !r.Expects() {
			continue
		}
		b = append(b, f.Name+": "+f.Value+"\r\n"...)
	}
	b = r.Framing.appendFields(b)
	if upgrade {
		return append(b, "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"...)
	}
	return append(b, "Connection: close\r\n\r\n"...)
}
