package main

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// gateChecks are about the three gates and the relay, beyond the seed's.
func gateChecks() []Check {
	const cut, dead = "no-egress", "no-harness"
	return []Check{
		{"N10", netNS, full, "CONNECT to a server that is let through, by address and by name, and plain HTTP", "its answer", []string{cut},
			"inside: the check is its own control", egressWorks},
		{"N11", netNS, full, "ask the egress gate for private and special addresses, however they are written", "403 for each", []string{"egress-open", cut},
			"inside: the gate lets another address through; outside: nobody came", egressRefuses},
		{"N12", netNS, full, "CONNECT twice to a name whose second answer is this machine", "the first answer's server, then 403", []string{"egress-open", "egress-resolve-twice", cut},
			"outside: the name was looked up once for each, and nobody came to this machine", turningName},
		{"N13", netNS, full, "open more connections to the egress gate than it serves, and say nothing", "256 stay open at most; it serves again afterwards", []string{"no-conn-cap", cut},
			"inside: it serves another connection before and afterwards", connectionCap},
		{"N14", netNS, full, "post to an internal route of the harness gate", "the server's answer", []string{dead, "listener-released"},
			"outside: the server was asked", harnessWorks},
		{"N15", netNS, full, "ask the harness gate for other routes by 20 spellings", "400, 403 or 405 for each", []string{"harness-open", dead, "share-net", "listener-released"},
			"inside: an internal route is answered 200; outside: the server was asked for that one only", harnessSpellings},
		{"N17", netNS, full, "wait for the redirect of a sign-in", "it is delivered", []string{"no-relay", "share-net"},
			"outside: our answer came back", relayDelivers},
		{"N19", netNS, full, "CONNECT to port 25 of an address that is let through", "403", []string{"egress-open", cut},
			"inside: another port of it is let through", mailRefused},
		{"N20", netNS, full, "ask the egress gate for this machine by plain HTTP", "403", []string{"egress-open", cut},
			"inside: another server is let through; outside: nobody came", plainRefused},
	}
}

// tunnel asks the egress gate for a server, and that one for its root.
func (f *Fixture) tunnel(target string) (status int, text string, err error) {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(f.EgressPort)), time.Second)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	status, ok := parseStatus(line)
	if !ok {
		return 0, "", fmt.Errorf("no HTTP answer: %w", err)
	}
	if status != 200 {
		return status, "", nil
	}
	for strings.TrimSpace(line) != "" {
		if line, err = in.ReadString('\n'); err != nil {
			return status, "", err
		}
	}
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target)
	var b strings.Builder
	_, err = in.WriteTo(&b)
	return status, b.String(), err
}

// letThrough is the control of what the egress gate refuses.
func (f *Fixture) letThrough() Result {
	if f.Far == "" || f.FarSays == "" || f.EgressPort == 0 {
		return unclear("the fixture names no gate or no server")
	}
	status, text, err := f.tunnel(f.Far)
	if err != nil || status != 200 || !strings.Contains(text, f.FarSays) {
		return unclear("the egress gate lets nothing through: status %d, %v", status, errno(err))
	}
	return pass("it does")
}

func egressWorks(f *Fixture) Result {
	if r := f.letThrough(); r.Verdict != Pass {
		return Result{Verdict: Fail, Why: r.Why}
	}
	a, err := ask(f.EgressPort, "GET http://"+f.Far+"/", f.Far, nil)
	if err != nil || a.status != 200 || !strings.Contains(a.text, f.FarSays) {
		return fail("plain HTTP is not passed on: status %d, %v", a.status, errno(err))
	}
	if status, text, err := f.tunnel(f.FarName); err != nil || status != 200 || !strings.Contains(text, f.FarSays) {
		return fail("it is not found by its name: status %d, %v", status, errno(err))
	}
	return pass("all are answered by the server")
}

// refusedTargets are addresses that no box may reach, as URLs and as programs
// write them.
var refusedTargets = []string{
	"127.0.0.1:%d", "localhost:%[1]d", "127.1:%[1]d", "2130706433:%[1]d", "0x7f000001:%[1]d", "0177.0.0.1:%[1]d", "0.0.0.0:%[1]d",
	"[::1]:%[1]d", "[::ffff:127.0.0.1]:%[1]d", "[::ffff:7f00:1]:%[1]d", "[64:ff9b::7f00:1]:%[1]d", "[::127.0.0.1]:%[1]d", "[::]:%[1]d",
	"10.0.0.1:80", "172.16.0.1:80", "192.168.0.1:80", "100.64.0.1:80", "169.254.1.1:80", "169.254.169.254:80",
	"[fd00:ec2::254]:80", "[fdaa::3]:80", "[fe80::1]:80", "[fc00::1]:80", "224.0.0.1:80", "255.255.255.255:80", "198.18.0.1:80",
	"metadata.google.internal:80", "x.local:80", "single:80",
}

func egressRefuses(f *Fixture) Result {
	if r := f.letThrough(); r.Verdict != Pass {
		return r
	}
	for _, form := range refusedTargets {
		target := form
		if strings.Contains(form, "%") {
			target = fmt.Sprintf(form, f.LoopbackPort)
		}
		a, err := ask(f.EgressPort, "CONNECT "+target, target, nil)
		switch {
		case err != nil:
			return unclear("no answer for %s: %v", form, errno(err))
		case a.status/100 == 2:
			return fail("%s is let through", form)
		case a.status != 403 && a.status != 400:
			return unclear("%s is answered %d, which is no refusal of its address", form, a.status)
		}
	}
	return pass("%d targets refused", len(refusedTargets))
}

func turningName(f *Fixture) Result {
	if f.TurningName == "" {
		return unclear("the fixture names no name")
	}
	first, text, err := f.tunnel(f.TurningName)
	switch {
	case err != nil || first != 200:
		return unclear("the first answer is not let through: status %d, %v", first, errno(err))
	case !strings.Contains(text, f.FarSays):
		return fail("another server answers than the one that was judged")
	}
	switch second, _, err := f.tunnel(f.TurningName); {
	case second == 200:
		return fail("the second answer is let through")
	case err != nil || second != 403:
		return unclear("the second answer is not judged: status %d, %v", second, errno(err))
	}
	return pass("200 for the first answer, 403 for the second")
}

func mailRefused(f *Fixture) Result {
	if r := f.letThrough(); r.Verdict != Pass {
		return r
	}
	host, _, _ := net.SplitHostPort(f.Far)
	target := net.JoinHostPort(host, "25")
	return f.refusedByGate("CONNECT "+target, target)
}

func plainRefused(f *Fixture) Result {
	if r := f.letThrough(); r.Verdict != Pass {
		return r
	}
	host := net.JoinHostPort("127.0.0.1", strconv.Itoa(f.LoopbackPort))
	return f.refusedByGate("GET http://"+host+"/", host)
}

func (f *Fixture) refusedByGate(request, host string) Result {
	switch a, err := ask(f.EgressPort, request, host, nil); {
	case err != nil:
		return unclear("no answer: %v", errno(err))
	case a.status != 403:
		return fail("answered %d", a.status)
	}
	return pass("403")
}

// served is how many connections a gate serves at once, and crowd more than it.
const (
	served = 256
	crowd  = served + 24
)

func connectionCap(f *Fixture) Result {
	if r := f.letThrough(); r.Verdict != Pass {
		return r
	}
	var conns []net.Conn
	closeAll := func() {
		for _, c := range conns {
			c.Close()
		}
	}
	defer closeAll()
	for range crowd {
		c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(f.EgressPort)), time.Second)
		if err != nil {
			return unclear("open connection %d: %v", len(conns)+1, errno(err))
		}
		conns = append(conns, c)
	}
	// Whoever is not served is told so, or hears an end, unasked.
	heard := make(chan struct{}, crowd)
	for _, c := range conns {
		go func() { c.Read(make([]byte, 1)); heard <- struct{}{} }()
	}
	late := time.After(time.Second)
	for n := range crowd - served {
		select {
		case <-heard:
		case <-late:
			return fail("%d connections are served at once", crowd-n)
		}
	}
	closeAll()
	var r Result
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if r = f.letThrough(); r.Verdict == Pass {
			return pass("at most %d of %d stay open, and the gate serves again", served, crowd)
		}
	}
	return fail("the gate does not serve again: %s", r.Why)
}

func harnessWorks(f *Fixture) Result {
	if f.HarnessPort == 0 || f.InternalRoute == "" {
		return unclear("the fixture names no gate or no route")
	}
	switch a, err := ask(f.HarnessPort, "POST "+f.InternalRoute, "127.0.0.1", []string{"Content-Length: 0"}); {
	case err != nil:
		return fail("the harness gate does not answer: %v", errno(err))
	case a.status != 200:
		return fail("it answers %d", a.status)
	}
	return pass("200")
}

// spellings of routes that are not internal, or that some reader of a path
// takes for one that is not.
var spellings = []string{
	"GET /", "GET /api/bots", "GET /api/internal", "GET /api/internalx/agents", "GET //api/internal/agents", "GET /api//internal/agents",
	"GET /./api/internal/agents", "GET /API/internal/agents", "GET /%61pi/internal/agents", "GET /api/internal%2fagents",
	"GET /api/internal/../bots", "GET /api/internal/%2e%2e/bots", "GET /api/internal/..%2fbots", "GET /api/internal/%252e%252e/bots",
	"GET /api/internal/..;/bots", `GET /api/internal/..\bots`, "GET /api/bots?x=/api/internal/", "GET /api/internal//agents",
	"GET http://127.0.0.1/api/bots", "CONNECT 127.0.0.1:80",
}

func harnessSpellings(f *Fixture) Result {
	if r := harnessWorks(f); r.Verdict != Pass {
		return unclear("an internal route is not answered either: %s", r.Why)
	}
	for _, request := range spellings {
		switch a, err := ask(f.HarnessPort, request, "127.0.0.1", nil); {
		case err != nil:
			return unclear("%s: %v", request, errno(err))
		case a.status != 400 && a.status != 403 && a.status != 405:
			return fail("%s is answered %d", request, a.status)
		}
	}
	return pass("%d refused", len(spellings))
}

// relayDelivers listens where an engine does that waits for its sign-in. The
// worker comes into the box over a socket that was born here.
func relayDelivers(f *Fixture) Result {
	if f.RelayPort == 0 {
		return unclear("the fixture names no port")
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(f.RelayPort)))
	if err != nil {
		return unclear("listen: %v", errno(err))
	}
	defer l.Close()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(2 * time.Second))
	conn, err := l.Accept()
	if err != nil {
		return fail("nobody came: %v", errno(err))
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, f.Marker) {
		return fail("something else came: %v", errno(err))
	}
	fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(f.Marker), f.Marker)
	return pass("delivered")
}
