package gate

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/openmausbot/botbox/shared/addrpolicy"
)

// Refusal is a "no" that reaches a person. Through CONNECT most clients show
// nothing but the status line, so that line carries the reason; the number is
// the class of the problem, for curl and git show only it. Never 407 (clients
// ask for a password) and never 5xx for policy (pip and npm try again).
type Refusal struct {
	Status      int    // 400 malformed, 403 policy, 429 limit, 502 and 504 the far side
	Class       string // stable code for X-Botbox-Refused and the log
	Reason      string // at most addrpolicy.MaxReason bytes, printable ASCII, no internal address
	Hint        string // what to do, one sentence
	ProxyStatus string // an RFC 9209 error type
}

// Error makes a refusal usable as an error inside the gates.
func (r *Refusal) Error() string { return r.Reason }

// ReasonHeader is the field that carries a refusal's class. An answer from an
// upstream never carries it: the gates strip it there.
const ReasonHeader = "X-Botbox-Refused"

// StatusHeader is RFC 9209's field; ours to set, stripped from upstreams.
const StatusHeader = "Proxy-Status"

const (
	hintPolicy = "This address is closed to every box; a setting can name exceptions."
	hintSyntax = "Correct the request; it was not sent anywhere."
	hintLater  = "Try again later."

	hintNoProxy = "Loopback is reached without the proxy: set NO_PROXY=localhost,127.0.0.1,::1."
)

// loopback is the refusal of a loopback address or name. A box's 127.0.0.1 is
// its own, the broker and the harness gate listen there, and a program that
// asks this gate for it has lost NO_PROXY.
func loopback(class string) *Refusal {
	return &Refusal{403, class, "loopback needs no proxy, but NO_PROXY is missing", hintNoProxy, "destination_ip_prohibited"}
}

// Malformed is the refusal of a request that breaks the grammar.
func Malformed(reason string) *Refusal {
	return &Refusal{400, "malformed", reason, hintSyntax, "http_request_error"}
}

// Denied is a refusal by policy.
func Denied(class, reason, hint string) *Refusal {
	return &Refusal{403, class, reason, hint, "http_request_denied"}
}

// TooMany is the refusal at a cap.
func TooMany() *Refusal {
	return &Refusal{429, "limit", "too many connections are open from this box", "Close some, then try again.", "connection_limit_reached"}
}

func deniedAddress(v addrpolicy.Verdict) *Refusal {
	if v.Class == addrpolicy.Loopback {
		return loopback(string(v.Class))
	}
	return &Refusal{403, string(v.Class), v.Reason, hintPolicy, "destination_ip_prohibited"}
}

// Bytes gives the whole answer. The subject says what was refused; bytes of it
// that are not printable ASCII do not get through.
func (r *Refusal) Bytes(subject string) []byte {
	body := fmt.Sprintf("botbox refused %s\nWhy: %s\nWhat to do: %s\n", Printable(subject, 100), r.Reason, r.Hint)
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d botbox: %s\r\n", r.Status, Printable(r.Reason, addrpolicy.MaxReason))
	fmt.Fprintf(&b, "Connection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n", len(body))
	if r.ProxyStatus != "" {
		fmt.Fprintf(&b, "%s: botbox; error=%s\r\n", StatusHeader, r.ProxyStatus)
	}
	if r.Status == 429 {
		b.WriteString("Retry-After: 1\r\n")
	}
	fmt.Fprintf(&b, "%s: %s\r\n\r\n%s", ReasonHeader, r.Class, body)
	return []byte(b.String())
}

// Printable keeps the printable ASCII of s, max bytes at most, so that nothing
// a client wrote can start a line of its own in an answer.
func Printable(s string, max int) string {
	b := make([]byte, 0, max)
	for i := 0; i < len(s) && len(b) < max; i++ {
		if s[i] >= ' ' && s[i] <= '~' {
			b = append(b, s[i])
		}
	}
	return string(b)
}

const (
	drainBytes = 64 << 10
	drainTime  = time.Second
)

// Answer writes the refusal and lets the client read it.
func (r *Refusal) Answer(c Stream, subject string) {
	c.SetWriteDeadline(time.Now().Add(drainTime))
	if _, err := c.Write(r.Bytes(subject)); err == nil {
		Linger(c)
	}
}

// Linger half-closes and drains: a close with unread bytes would send a reset,
// which destroys the answer on its way. The caller closes.
func Linger(c Stream) {
	if c.CloseWrite() == nil {
		c.SetReadDeadline(time.Now().Add(drainTime))
		io.CopyN(io.Discard, c, drainBytes)
	}
}

// Stream is what a gate needs of a connection: *net.TCPConn and *net.UnixConn
// have it. A wrapper of either would hide the half-close.
type Stream interface {
	net.Conn
	CloseWrite() error
	rawConn
}
