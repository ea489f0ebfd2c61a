package egress

import (
	"bufio"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// taker is an interceptor that says back what it gets, and where.
type taker struct {
	mu    sync.Mutex
	hosts []string
}

func (k *taker) Declares(host string) bool { return host == "vendor.example" }

func (k *taker) Hand(c gate.Stream, early []byte, host string) (up, down int64) {
	k.mu.Lock()
	k.hosts = append(k.hosts, host)
	k.mu.Unlock()
	if _, err := c.Write(append([]byte("taken: "), early...)); err != nil {
		return 0, 0
	}
	n, _ := io.Copy(c, struct{ io.Reader }{c})
	return int64(len(early)) + n, n
}

func pattern(t *testing.T, s string) hostport.Pattern {
	t.Helper()
	p, err := hostport.ParsePattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDeclaredHostsAreHandedOver(t *testing.T) {
	o := gatetest.NewOrigin(t, gatetest.Echo)
	for name, c := range map[string]struct {
		request string
		change  func(*Options)
		want    string // the answer's beginning
		handed  bool
	}{
		"declared":         {"CONNECT vendor.example:443 HTTP/1.1\r\n\r\nhello", nil, "HTTP/1.1 200 ", true},
		"in upper case":    {"CONNECT VENDOR.Example.:443 HTTP/1.1\r\nHost: other.example\r\n\r\nhello", nil, "HTTP/1.1 200 ", true},
		"another port":     {"CONNECT vendor.example:8443 HTTP/1.1\r\n\r\nhello", nil, "HTTP/1.1 502 ", false},
		"another host":     {"CONNECT www.vendor.example:443 HTTP/1.1\r\n\r\nhello", nil, "HTTP/1.1 502 ", false},
		"in clear":         {"GET http://vendor.example/ HTTP/1.1\r\nHost: vendor.example\r\n\r\n", nil, "HTTP/1.1 403 botbox: this host is reached by https only", false},
		"not on the list":  {"CONNECT vendor.example:443 HTTP/1.1\r\n\r\nhello", func(o *Options) { o.Dialer.BoxHosts = []hostport.Pattern{} }, "HTTP/1.1 403 ", false},
		"denied":           {"CONNECT vendor.example:443 HTTP/1.1\r\n\r\nhello", func(o *Options) { o.Dialer.BoxDeny = []hostport.Pattern{pattern(t, "vendor.example")} }, "HTTP/1.1 403 ", false},
		"a closed port":    {"CONNECT vendor.example:443 HTTP/1.1\r\n\r\nhello", func(o *Options) { o.Dialer.AllowPorts = []uint16{80} }, "HTTP/1.1 403 ", false},
		"no bytes left":    {"CONNECT vendor.example:443 HTTP/1.1\r\n\r\nhello", func(o *Options) { o.Dialer.Budget = gate.NewBudget(1, func() {}); o.Dialer.Budget.Admit(1) }, "HTTP/1.1 403 ", false},
		"none is declared": {"CONNECT vendor.example:443 HTTP/1.1\r\n\r\nhello", func(o *Options) { o.Intercept = nil }, "HTTP/1.1 502 ", false},
	} {
		k := &taker{}
		decided := make(chan gate.Decision, 4)
		address, _, names := start(t, o, func(o *Options) {
			o.Intercept, o.Log = k, func(d gate.Decision) { decided <- d }
			if c.change != nil {
				c.change(o)
			}
		})
		conn := gatetest.Dial(t, address)
		io.WriteString(conn, c.request)
		conn.CloseWrite()
		got, _ := io.ReadAll(bufio.NewReader(conn))
		if !strings.HasPrefix(string(got), c.want) || c.handed != (len(k.hosts) == 1) {
			t.Errorf("%s: %q, handed over: %v", name, got, k.hosts)
		}
		d := <-decided
		if c.handed && (!strings.HasSuffix(string(got), "taken: hello") || k.hosts[0] != "vendor.example" || d.Class != "intercepted" || !d.Allowed || d.Up != 5 || d.Host != "vendor.example") {
			t.Errorf("%s: %q %v %+v", name, got, k.hosts, d)
		}
		if !c.handed && d.Allowed {
			t.Errorf("%s: %+v", name, d)
		}
		if c.handed && names.Total() != 0 {
			t.Errorf("%s: the gate looked the name up", name)
		}
	}
}

// A handed connection ends with the box's bytes, also in the midst of one.
func TestAHandedConnectionsBytes(t *testing.T) {
	spent := make(chan struct{})
	k := &taker{}
	address, _, _ := start(t, gatetest.NewOrigin(t, gatetest.Echo), func(o *Options) {
		o.Intercept = k
		o.Dialer.Budget = gate.NewBudget(100, func() { close(spent) })
	})
	conn := gatetest.Dial(t, address)
	io.WriteString(conn, "CONNECT vendor.example:443 HTTP/1.1\r\n\r\n")
	go func() {
		for range 100 {
			io.WriteString(conn, "0123456789")
			time.Sleep(time.Millisecond)
		}
	}()
	got, _ := io.ReadAll(conn)
	if len(got) > 39+len("taken: ")+100 {
		t.Errorf("%d bytes came: %q", len(got), got)
	}
	select {
	case <-spent:
	case <-time.After(10 * time.Second):
		t.Error("nobody was told")
	}
}

// The gate's end ends a handed connection.
func TestCloseEndsAHandedConnection(t *testing.T) {
	address, g, _ := start(t, gatetest.NewOrigin(t, gatetest.Echo), func(o *Options) { o.Intercept = &taker{} })
	conn := gatetest.Dial(t, address)
	io.WriteString(conn, "CONNECT vendor.example:443 HTTP/1.1\r\n\r\nx")
	br := bufio.NewReader(conn)
	gatetest.Expect(t, br, "HTTP/1.1 200 Connection established\r\n\r\ntaken: x")
	done := make(chan struct{})
	go func() { g.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("Close waits for it")
	}
	if _, err := br.ReadByte(); err == nil {
		t.Error("the connection is open")
	}
}
