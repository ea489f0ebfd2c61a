package selfcheck

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/openmausbot/botbox/worker/internal/box"
)

// flaw is what a mutation does in front of one gate of the self-check's own
// box: to each request's head, before the gate sees it. It gives the head that
// is sent, and where to if not to the gate.
type flaw struct {
	port func(box.Ports) int
	turn func(o *outside, head string) (elsewhere netip.AddrPort, changed string) // nil: changes nothing
	shut bool                                                                     // nobody is served
	free bool                                                                     // the port is given up
	mute bool                                                                     // the gate hears of a connection only with its first request
}

func egressPort(p box.Ports) int  { return p.Egress }
func brokerPort(p box.Ports) int  { return p.Broker }
func harnessPort(p box.Ports) int { return p.Harness }

// gateMutations leave the box as it is: their flaws stand before its gates.
var gateMutations = []mutation{
	{"no-egress", "the egress gate: it closes every connection", leave},
	{"egress-open", "the egress gate's refusals: everything is answered 200", leave},
	{"egress-resolve-twice", "the one look-up: the address that is dialled is another than the one that was judged", leave},
	{"no-conn-cap", "the bound on the egress gate's connections", leave},
	{"no-harness", "the harness gate: it closes every connection", leave},
	{"harness-open", "the harness gate's refusals: the server itself answers", leave},
	{"listener-released", "the listener of the harness gate: its port is free", leave},
	{"no-relay", "the sockets that the relay comes in by", func(_ *outside, p *box.Plan) { p.Spares = box.Spares{} }},
	{"fd-hold", "the closing of the box's listeners when it has ended", func(o *outside, _ *box.Plan) { o.holds = true }},
	{"keep-score", "the score by which a box dies first when memory is short", func(_ *outside, p *box.Plan) { p.Lacks.KeepScore = true }},
	{"broker-open", "the comparison of tokens: any is good", leave},
	{"broker-any-grant", "the comparison of grants: a token is good for any", leave},
	{"broker-host", "the fixed upstream: the Host field chooses it", leave},
	{"broker-no-revoke", "the end of tokens", leave},
	{"token-lives", "the end of a token with its engine: the check is shown one that lives on", func(o *outside, _ *box.Plan) { o.revive = true }},
	{"broker-reflect", "the search of answers for the key", leave},
	{"broker-unbound", "the tie between a token and its box", leave},
	{"broker-any-path", "the list of endpoints", leave},
	{"broker-any-method", "the list of methods", leave},
	{"broker-follow", "the refusal of redirects", leave},
	{"broker-pathless", "the one place for a token", leave},
	{"broker-passthrough", "what keeps a box's own credentials from the upstream", leave},
}

func leave(*outside, *box.Plan) {}

var flaws = map[string]flaw{
	"no-egress":            {port: egressPort, shut: true},
	"egress-open":          {port: egressPort, turn: anyTarget},
	"egress-resolve-twice": {port: egressPort, turn: secondAnswer},
	"no-conn-cap":          {port: egressPort, mute: true},
	"no-harness":           {port: harnessPort, shut: true},
	"harness-open": {port: harnessPort, turn: func(o *outside, head string) (netip.AddrPort, string) {
		return o.server.address, head
	}},
	"listener-released":  {port: harnessPort, free: true},
	"broker-open":        {port: brokerPort, turn: anyToken},
	"broker-any-grant":   {port: brokerPort, turn: replacing(func(*outside) []string { return []string{"/" + ungranted + "/"} }, "/"+granted+"/")},
	"broker-no-revoke":   {port: brokerPort, turn: asOurs(func(o *outside) []string { return o.DeadTokens })},
	"broker-unbound":     {port: brokerPort, turn: asOurs(func(o *outside) []string { return []string{o.ForeignToken} })},
	"broker-host":        {port: brokerPort, turn: byHost},
	"broker-reflect":     {port: brokerPort, turn: direct(func(head string) bool { return strings.Contains(head, "&reflect=") })},
	"broker-any-path":    {port: brokerPort, turn: direct(func(head string) bool { return strings.Contains(head, "check=B11-refused") })},
	"broker-any-method":  {port: brokerPort, turn: direct(func(head string) bool { return strings.Contains(head, "check=B12-refused") })},
	"broker-passthrough": {port: brokerPort, turn: direct(func(head string) bool { return strings.Contains(head, "check=B4&") })},
	"broker-follow":      {port: brokerPort, turn: redirect},
	"broker-pathless":    {port: brokerPort, turn: pathless},
}

func anyTarget(o *outside, head string) (netip.AddrPort, string) {
	if strings.HasPrefix(head, "CONNECT "+turningName) && o.dns.asked() == 0 || o.isFar(head) {
		return netip.AddrPort{}, head
	}
	return o.far.address, "GET / HTTP/1.1\r\nHost: far\r\nConnection: close\r\n\r\n"
}

func (o *outside) isFar(head string) bool {
	_, target, _ := strings.Cut(head, " ")
	return strings.HasPrefix(target, o.Far+" ") || strings.HasPrefix(target, o.FarName+" ") ||
		strings.HasPrefix(target, "http://"+o.Far+"/")
}

func secondAnswer(o *outside, head string) (netip.AddrPort, string) {
	if !strings.HasPrefix(head, "CONNECT "+turningName) {
		return netip.AddrPort{}, head
	}
	return o.turned.address, head // which answers CONNECT with 200 as it answers anything
}

// replacing puts another text for some in the request line.
func replacing(what func(*outside) []string, by string) func(*outside, string) (netip.AddrPort, string) {
	return func(o *outside, head string) (netip.AddrPort, string) {
		line, rest, _ := strings.Cut(head, "\r\n")
		for _, text := range what(o) {
			line = strings.Replace(line, text, by, 1)
		}
		return netip.AddrPort{}, line + "\r\n" + rest
	}
}

func asOurs(tokens func(*outside) []string) func(*outside, string) (netip.AddrPort, string) {
	return func(o *outside, head string) (netip.AddrPort, string) { return replacing(tokens, o.ours)(o, head) }
}

// anyToken knows a wrong token by its form, which is all that the flaw looks at.
func anyToken(o *outside, head string) (netip.AddrPort, string) {
	token, err := tokenOf(head)
	known := append([]string{o.ours, o.ForeignToken}, o.DeadTokens...)
	if err != nil || !strings.HasPrefix(token, "omb_t0_") || slices.Contains(known, token) {
		return netip.AddrPort{}, head
	}
	return netip.AddrPort{}, strings.Replace(head, token, o.ours, 1)
}

// direct sends some requests to the upstream with the key, past the broker.
func direct(which func(head string) bool) func(*outside, string) (netip.AddrPort, string) {
	return func(o *outside, head string) (netip.AddrPort, string) {
		if !which(head) {
			return netip.AddrPort{}, head
		}
		head = strings.Replace(head, "/b/"+o.ours+"/"+granted, "", 1)
		line, rest, _ := strings.Cut(head, "\r\n")
		if before, after, ok := strings.Cut(rest, "x-api-key: "); ok { // the box's own, which would be a second one
			_, after, _ = strings.Cut(after, "\r\n")
			rest = before + after
		}
		return o.provider.address, line + "\r\n" + keyHeader + ": " + o.key + "\r\n" + rest
	}
}

func byHost(o *outside, head string) (netip.AddrPort, string) {
	if strings.Contains(head, "\r\nHost: "+o.Decoy+"\r\n") {
		return o.decoy.address, head
	}
	return netip.AddrPort{}, head
}

func redirect(o *outside, head string) (netip.AddrPort, string) {
	if strings.Contains(head, "&redirect=") {
		return o.away.address, head
	}
	return netip.AddrPort{}, head
}

func pathless(o *outside, head string) (netip.AddrPort, string) {
	method, rest, _ := strings.Cut(head, " ")
	if strings.HasPrefix(rest, o.Call) && strings.Contains(head, o.ours) {
		head = method + " /b/" + o.ours + "/" + granted + rest
	}
	return netip.AddrPort{}, head
}

// front gives the listener that a gate serves: the donated one, or one of ours
// behind the flaws that the mutations have for it.
func (v *visit) front(port int, donated net.Listener) net.Listener {
	v.donated(port, donated)
	var here []flaw
	for _, m := range v.under {
		if f, ok := flaws[m.name]; ok && f.port(v.boxPorts) == port {
			here = append(here, f)
		}
	}
	if len(here) == 0 {
		return donated
	}
	path := filepath.Join(v.root, "front-"+strconv.Itoa(port))
	inner, err := net.Listen("unix", path)
	if err != nil {
		return donated // and the mutation breaks nothing, which is found out
	}
	f := &front{Listener: inner, donated: donated, flaws: here, outside: v.outside}
	go f.accept()
	return f
}

// front stands before a gate.
type front struct {
	net.Listener // the gate's
	donated      net.Listener
	flaws        []flaw
	*outside
}

// Close frees the box's own listener, too.
func (f *front) Close() error {
	f.donated.Close()
	return f.Listener.Close()
}

func (f *front) accept() {
	if f.has(func(x flaw) bool { return x.free }) {
		f.donated.Close()
	}
	for {
		c, err := f.donated.Accept()
		if err != nil {
			return
		}
		go f.serve(c)
	}
}

// serve passes one request on, with what follows it: the probe sends no second
// one on a connection. What the gate says unasked is passed on, too.
func (f *front) serve(c net.Conn) {
	defer c.Close()
	if f.has(func(x flaw) bool { return x.shut }) {
		return
	}
	p := &passing{client: c, gate: f.Listener.Addr().String()}
	defer p.close()
	if !f.has(func(x flaw) bool { return x.mute }) && !p.open() {
		return
	}
	head, rest, err := readHead(c)
	if err != nil {
		return
	}
	var to netip.AddrPort
	for _, flaw := range f.flaws {
		if flaw.turn != nil && !to.IsValid() {
			to, head = flaw.turn(f.outside, head)
		}
	}
	first := append([]byte(head), rest...)
	if to.IsValid() {
		p.divert(to, first)
	} else if p.open() {
		p.conn.Write(first)
		io.Copy(p.conn, c) // until the gate's end closes it
	}
}

func (f *front) has(what func(flaw) bool) bool { return slices.ContainsFunc(f.flaws, what) }

// passing is one connection on its way to the gate.
type passing struct {
	client   net.Conn
	gate     string
	conn     net.Conn // to the gate; nil before open
	diverted atomic.Bool
	back     sync.WaitGroup
}

func (p *passing) open() (ok bool) {
	if p.conn != nil {
		return true
	}
	conn, err := net.DialTimeout("unix", p.gate, patience)
	if err != nil {
		return false
	}
	p.conn = conn
	p.back.Go(func() {
		io.Copy(p.client, conn)
		if !p.diverted.Load() {
			p.client.Close()
		}
	})
	return true
}

// divert talks to another server in the gate's place.
func (p *passing) divert(to netip.AddrPort, first []byte) {
	p.diverted.Store(true)
	up, err := net.DialTimeout("tcp", to.String(), patience)
	if err != nil {
		return
	}
	defer up.Close()
	up.Write(first)
	go io.Copy(up, p.client)
	io.Copy(p.client, up)
}

func (p *passing) close() {
	if p.conn != nil {
		p.conn.Close()
	}
	p.back.Wait()
}

// readHead reads up to the empty line, and what came with it.
func readHead(c net.Conn) (head string, rest []byte, err error) {
	var all []byte
	for buf := make([]byte, 4096); ; {
		n, err := c.Read(buf)
		all = append(all, buf[:n]...)
		if i := bytes.Index(all, []byte("\r\n\r\n")); i >= 0 {
			return string(all[:i+4]), all[i+4:], nil
		}
		if err != nil || len(all) > 1<<16 {
			return "", nil, io.ErrUnexpectedEOF
		}
	}
}
