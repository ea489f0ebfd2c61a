package egress

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// probes are requests as raw bytes. PORT stands for the origin's port, CRLF is
// written as usual. The golden file says how each one is answered.
var probes = []struct{ name, raw string }{
	{"connect", "CONNECT origin.example:PORT HTTP/1.1\r\nHost: origin.example:PORT\r\n\r\nPING"},
	{"connect http/1.0 without Host", "CONNECT origin.example:PORT HTTP/1.0\r\n\r\nPING"},
	{"connect Host differs", "CONNECT origin.example:PORT HTTP/1.1\r\nHost: proxy:3128\r\n\r\nPING"},
	{"connect upper-case name, trailing dot", "CONNECT ORIGIN.example.:PORT HTTP/1.1\r\n\r\nPING"},
	{"connect without port", "CONNECT origin.example HTTP/1.1\r\n\r\n"},
	{"connect port 0", "CONNECT origin.example:0 HTTP/1.1\r\n\r\n"},
	{"connect port beyond 65535", "CONNECT origin.example:1PORT HTTP/1.1\r\n\r\n"},
	{"connect port with sign", "CONNECT origin.example:+PORT HTTP/1.1\r\n\r\n"},
	{"connect port by name", "CONNECT origin.example:https HTTP/1.1\r\n\r\n"},
	{"connect user@host", "CONNECT user@origin.example:PORT HTTP/1.1\r\n\r\n"},
	{"connect host:port/path", "CONNECT origin.example:PORT/path HTTP/1.1\r\n\r\n"},
	{"connect absolute URL", "CONNECT http://origin.example:PORT/ HTTP/1.1\r\n\r\n"},
	{"connect bracketed IPv4", "CONNECT [127.0.0.1]:PORT HTTP/1.1\r\n\r\n"},
	{"connect bracketed name", "CONNECT [origin.example]:PORT HTTP/1.1\r\n\r\n"},
	{"connect unbracketed IPv6", "CONNECT ::1:PORT HTTP/1.1\r\n\r\n"},
	{"connect zone", "CONNECT [fe80::1%eth0]:PORT HTTP/1.1\r\n\r\n"},
	{"connect decimal IPv4", "CONNECT 2130706433:PORT HTTP/1.1\r\n\r\n"},
	{"connect hexadecimal IPv4", "CONNECT 0x7f.0.0.1:PORT HTTP/1.1\r\n\r\n"},
	{"connect octal IPv4", "CONNECT 0177.0.0.1:PORT HTTP/1.1\r\n\r\n"},
	{"connect short IPv4", "CONNECT 127.1:PORT HTTP/1.1\r\n\r\n"},
	{"connect trailing-dot IPv4", "CONNECT 127.0.0.1.:1 HTTP/1.1\r\n\r\n"},
	{"connect LOCALHOST.", "CONNECT LOCALHOST.:PORT HTTP/1.1\r\n\r\n"},
	{"connect two trailing dots", "CONNECT origin.example..:PORT HTTP/1.1\r\n\r\n"},
	{"connect NUL in host", "CONNECT origin\x00.example:PORT HTTP/1.1\r\n\r\n"},
	{"connect full-width digits", "CONNECT \uff11\uff12\uff17.0.0.1:PORT HTTP/1.1\r\n\r\n"},
	{"connect lower-case method", "connect origin.example:PORT HTTP/1.1\r\n\r\n"},
	{"connect tabs", "CONNECT\torigin.example:PORT\tHTTP/1.1\r\n\r\n"},
	{"connect two spaces", "CONNECT  origin.example:PORT HTTP/1.1\r\n\r\n"},
	{"connect with Content-Length", "CONNECT origin.example:PORT HTTP/1.1\r\nContent-Length: 4\r\n\r\nPING"},
	{"connect with Transfer-Encoding", "CONNECT origin.example:PORT HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"connect to the gate itself", "CONNECT 127.0.0.1:3128 HTTP/1.1\r\n\r\n"},
	{"connect to the broker's port", "CONNECT 127.0.0.1:18080 HTTP/1.1\r\n\r\n"},
	{"connect metadata", "CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n"},
	{"connect metadata, mapped", "CONNECT [::ffff:a9fe:a9fe]:80 HTTP/1.1\r\n\r\n"},
	{"connect private", "CONNECT 10.0.0.1:443 HTTP/1.1\r\n\r\n"},
	{"connect Fly's resolver", "CONNECT [fdaa::3]:53 HTTP/1.1\r\n\r\n"},
	{"connect name of a private address", "CONNECT private.example:443 HTTP/1.1\r\n\r\n"},
	{"connect mixed answer", "CONNECT mixed.example:443 HTTP/1.1\r\n\r\n"},
	{"connect missing name", "CONNECT missing.example:443 HTTP/1.1\r\n\r\n"},
	{"connect _api.internal", "CONNECT _api.internal:4280 HTTP/1.1\r\n\r\n"},
	{"connect port 25", "CONNECT origin.example:25 HTTP/1.1\r\n\r\n"},
	{"connect refused by the host", "CONNECT 127.0.0.1:CLOSED HTTP/1.1\r\n\r\n"},

	{"get", "GET http://origin.example:PORT/x HTTP/1.1\r\nHost: origin.example:PORT\r\n\r\n"},
	{"get http/1.0 without Host", "GET http://origin.example:PORT/x HTTP/1.0\r\n\r\n"},
	{"get Host differs", "GET http://origin.example:PORT/ HTTP/1.1\r\nHost: other.example\r\n\r\n"},
	{"get user info", "GET http://u:p@origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\n\r\n"},
	{"get bracketed name", "GET http://[origin.example]:PORT/ HTTP/1.1\r\nHost: [origin.example]:PORT\r\n\r\n"},
	{"get CL and TE", "POST http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"get duplicate CL", "POST http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi"},
	{"get space before colon", "POST http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nContent-Length : 2\r\n\r\nhi"},
	{"get TE gzip, chunked", "POST http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
	{"post TE Chunked", "POST http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"},
	{"delete chunked", "DELETE http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"},
	{"post bare-LF chunk line", "POST http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nTransfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n"},
	{"get bare-LF header lines", "GET http://origin.example:PORT/ HTTP/1.1\nHost: origin.example:PORT\n\n"},
	{"get folded field", "GET http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nX: a\r\n b\r\n\r\n"},
	{"get duplicate Host", "GET http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nHost: origin.example:PORT\r\n\r\n"},
	{"get https URL", "GET https://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\n\r\n"},
	{"get ftp URL", "GET ftp://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\n\r\n"},
	{"get file URL", "GET file:///etc/passwd HTTP/1.1\r\nHost: origin.example:PORT\r\n\r\n"},
	{"get ws URL", "GET ws://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\n\r\n"},
	{"get origin-form", "GET / HTTP/1.1\r\nHost: origin.example:PORT\r\n\r\n"},
	{"get //host", "GET //origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\n\r\n"},
	{"options *", "OPTIONS * HTTP/1.1\r\nHost: origin.example:PORT\r\n\r\n"},
	{"http/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
	{"http/1.2", "GET http://origin.example:PORT/ HTTP/1.2\r\nHost: origin.example:PORT\r\n\r\n"},
	{"http/0.9", "GET http://origin.example:PORT/\r\n\r\n"},
	{"no method", "http://origin.example:PORT/ HTTP/1.1\r\n\r\n"},
	{"get head of 128 KiB", "GET http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nX: " + strings.Repeat("a", 128<<10) + "\r\n\r\n"},
	{"get 3000 fields", "GET http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\n" + strings.Repeat("X: a\r\n", 3000) + "\r\n"},
	{"trace", "TRACE http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\n\r\n"},
	{"get host#@other", "GET http://origin.example#@other.example/ HTTP/1.1\r\nHost: origin.example\r\n\r\n"},
	{"get host\\@other", "GET http://origin.example:PORT\\@other.example/ HTTP/1.1\r\nHost: origin.example:PORT\r\n\r\n"},
	{"get encoded #", "GET http://origin.example%23.other/ HTTP/1.1\r\nHost: origin.example\r\n\r\n"},
	{"get loopback", "GET http://127.0.0.1:18080/b/x HTTP/1.1\r\nHost: 127.0.0.1:18080\r\n\r\n"},
	{"get localhost", "GET http://localhost:18080/b/x HTTP/1.1\r\nHost: localhost:18080\r\n\r\n"},
	{"get metadata", "GET http://169.254.169.254/latest/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n"},
	{"get private name", "GET http://private.example/ HTTP/1.1\r\nHost: private.example\r\n\r\n"},
}

// answer answers PING in kind and every http request with a 200 that forges a
// refusal's fields.
func answer(o *gatetest.Origin, c net.Conn, br *bufio.Reader) {
	if first, _ := br.Peek(4); string(first) == "PING" {
		io.WriteString(c, "PONG")
		io.Copy(io.Discard, br)
		return
	}
	o.Head(br)
	io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nProxy-Status: botbox; error=forged\r\nX-Botbox-Refused: forged\r\n\r\nok")
	gate.Linger(c.(*net.TCPConn))
}

// start runs a gate in front of the origin and gives its address.
func start(t *testing.T, o *gatetest.Origin, change func(*Options)) (address string, g *Gate, names *gatetest.Resolver) {
	t.Helper()
	names = &gatetest.Resolver{Names: map[string]string{
		"origin.example": "127.0.0.1", "private.example": "10.0.0.1", "mixed.example": "8.8.8.8,127.0.0.1",
	}}
	opts := Options{Box: "box-1"}
	opts.Dialer.Resolver = names
	opts.Dialer.Except = []netip.AddrPort{o.Addr()}
	if change != nil {
		change(&opts)
	}
	g = New(opts)
	return gatetest.Start(t, g), g, names
}

func TestProbes(t *testing.T) {
	o := gatetest.NewOrigin(t, answer)
	closed := gatetest.Closed(t)
	closedPort := fmt.Sprint(closed.Port())
	var log gatetest.Log[Decision]
	address, g, names := start(t, o, func(opts *Options) {
		opts.Dialer.Except = append(opts.Dialer.Except, closed)
		opts.Log = log.Add
	})
	var out strings.Builder
	for _, p := range probes {
		before, asked := o.Contacts(), names.Total()
		raw := strings.NewReplacer("PORT", o.Port(), "CLOSED", closedPort).Replace(p.raw)
		answer := gatetest.Ask(t, address, raw)
		hit := "-"
		if o.Contacts() != before {
			hit = "HIT"
		}
		if n := names.Total() - asked; n > 1 {
			t.Errorf("%s: %d lookups", p.name, n)
		}
		if strings.Contains(p.name, "name") && strings.Contains(answer, "10.0.0.1") || strings.Contains(answer, "forged") {
			t.Errorf("%s: the answer tells too much:\n%s", p.name, answer)
		}
		fmt.Fprintf(&out, "%-38s %-4s %s\n", p.name, hit, summary(t, p.name, answer))
	}
	golden(t, "testdata/probes.golden", out.String())
	g.Close()
	all := log.All()
	if len(all) != len(probes) {
		t.Fatalf("%d decisions for %d requests", len(all), len(probes))
	}
	for _, d := range all {
		if d.Box != "box-1" || d.Class == "" || d.Allowed != (d.Status < 400 || d.Class == "upstream") {
			t.Errorf("%+v", d)
		}
	}
}

// summary gives the status line, and of a refusal its class, after checking
// that the rest of the answer has the refusal's form.
func summary(t *testing.T, name, answer string) string {
	head, body, _ := strings.Cut(answer, "\r\n\r\n")
	line, fields, _ := strings.Cut(head, "\r\n")
	line = strings.TrimPrefix(line, "HTTP/1.1 ")
	_, class, refused := strings.Cut(fields, "X-Botbox-Refused: ")
	if !refused {
		return line + " | " + body
	}
	for _, need := range []string{"Connection: close", "Proxy-Status: botbox; error=", fmt.Sprintf("Content-Length: %d", len(body))} {
		if !strings.Contains(fields, need) {
			t.Errorf("%s: no %q in\n%s", name, need, answer)
		}
	}
	if strings.Count(body, "\n") != 3 || len(line) > 4+8+60 {
		t.Errorf("%s: not the form of a refusal:\n%s", name, answer)
	}
	if strings.Contains(name, "itself") || strings.Contains(name, "broker") || strings.Contains(name, "loopback") || strings.Contains(name, "localhost") {
		if !strings.Contains(body, "NO_PROXY is missing") {
			t.Errorf("%s: no word of NO_PROXY:\n%s", name, body)
		}
	}
	return line + " | " + class
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the answers differ from %s (rewrite with -update):\n%s", file, got)
	}
}
