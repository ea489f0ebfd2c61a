package egress

import (
	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/http1"
)

// Interceptor takes the connections to the hosts that a spec declares.
type Interceptor interface {
	Declares(host string) bool
	// Hand returns when the connection is closed, with the bytes that passed
	// inside. early is what came behind the CONNECT.
	Hand(c gate.Stream, early []byte, host string) (up, down int64)
}

// httpsPort is the one at which a declared host's TLS is ended.
const httpsPort = 443

// classIntercepted is what the log has for such a connection.
const classIntercepted = "intercepted"

func (g *Gate) declares(h hostport.Host) bool {
	return g.opts.Intercept != nil && h.Name != "" && g.opts.Intercept.Declares(h.Name)
}

// intercept hands a connection over instead of dialling. The box's lists and
// its budget hold all the same, and the address policy where the broker dials.
func (g *Gate) intercept(conn *http1.Conn, e *gate.Entry, host hostport.Host) {
	dialer := &g.opts.Dialer
	if r := dialer.Permits(host); r != nil {
		e.Refuse(conn.Stream, r, "CONNECT "+host.String())
		return
	}
	e.Allowed, e.Class, e.Status = true, classIntercepted, 200
	if _, err := conn.Stream.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		return
	}
	c := &metered{conn.Stream, dialer.Budget}
	early := conn.Early()
	if !dialer.Budget.Admit(len(early)) {
		return
	}
	defer dialer.Budget.OnOver(func() { conn.Stream.Close() })()
	e.Up, e.Down = g.opts.Intercept.Hand(c, early, host.Name)
}

// metered counts a connection's bytes against its box's budget.
type metered struct {
	gate.Stream
	budget *gate.Budget
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Stream.Read(p)
	if n > 0 && !m.budget.Admit(n) {
		return 0, gate.Spent()
	}
	return n, err
}

func (m *metered) Write(p []byte) (int, error) {
	if !m.budget.Admit(len(p)) {
		return 0, gate.Spent()
	}
	return m.Stream.Write(p)
}

// inClear is the refusal of a declared host without TLS: a placeholder that is
// sent there in clear is no key, and nothing would put one in its place.
func inClear() *gate.Refusal {
	return gate.Denied(classIntercepted, "this host is reached by https only", "Use an https URL: the broker puts the key into requests that come over TLS.")
}
