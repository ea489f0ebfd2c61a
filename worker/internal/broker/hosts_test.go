package broker

import (
	"bufio"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

const (
	hostKeyText = "xai-canary/0123456789+abcdef"
	vendorHost  = "example.com" // what httptest's certificate is for
	secondHost  = "www.example.com"
)

// named is a listener whose connections came by a CONNECT to a host.
type named struct {
	net.Listener
	host string
}

type namedConn struct {
	*net.TCPConn
	host string
}

func (c namedConn) DeclaredHost() string { return c.host }

func (n named) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return namedConn{c.(*net.TCPConn), n.host}, nil
}

// serveHost opens what the gate opens for a box's connections to a host.
func (s *stage) serveHost(box, host string) string {
	s.t.Helper()
	return s.open(func(l net.Listener) error { return s.ServeHosts(named{l, host}, box) })
}

// leadTo lets the broker find up at both hosts, and notes every dial.
func (s *stage) leadTo(up *upstream) {
	up.EnableHTTP2 = true
	up.StartTLS()
	transport := s.Broker.transport.(*upstreams).Transport
	roots := x509.NewCertPool()
	roots.AddCert(up.Certificate())
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: vendorHost}
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		s.mu.Lock()
		s.dials = append(s.dials, "for "+addr)
		s.mu.Unlock()
		return dial(ctx, network, up.Listener.Addr().String())
	}
}

// declare gives a token for a box with one declared key.
func (s *stage) declare(box string, limits Limits, paths ...string) string {
	s.t.Helper()
	keys := HostKeys("XAI_API_KEY", secret.New(hostKeyText), []string{vendorHost, secondHost}, paths)
	issued, err := s.Issue(Turn{Box: box, Bot: "bot", Engine: "none", Keys: keys, Refs: map[string]string{"XAI_API_KEY": "xai"}, Limits: limits})
	if err != nil {
		s.t.Fatal(err)
	}
	if strings.Join(issued.Intercepted, " ") != vendorHost+" "+secondHost || len(issued.Grants) != 0 {
		s.t.Fatalf("%+v", issued)
	}
	return issued.Env["XAI_API_KEY"]
}

func at(host string, more ...string) http.Header {
	h := http.Header{"Host": {host}}
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = append(h[more[i]], more[i+1])
	}
	return h
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// The token becomes the key wherever it is the whole of a credential, once, and
// all else goes out as it came.
func TestTheTokenBecomesTheKey(t *testing.T) {
	s, up := newStage(t, nil), newVendor(t)
	s.leadTo(up)
	token := s.declare("b1", Limits{})
	addr := s.serveHost("b1", vendorHost)
	for name, c := range map[string]struct{ uri, header, value, wantURI, want string }{
		"bearer":          {"/v1/chat?x=1&y=%20", "Authorization", "Bearer " + token, "/v1/chat?x=1&y=%20", "Bearer " + hostKeyText},
		"another scheme":  {"/v1/chat", "Authorization", "token " + token, "/v1/chat", "token " + hostKeyText},
		"bare":            {"/", "Authorization", token, "/", hostKeyText},
		"basic, password": {"/a%2Fb//c", "Authorization", basic("user", token), "/a%2Fb//c", basic("user", hostKeyText)},
		"basic, user":     {"/x", "Authorization", basic(token, ""), "/x", basic(hostKeyText, "")},
		"x-api-key":       {"/x", "X-Api-Key", token, "/x", hostKeyText},
		"api-key":         {"/x", "Api-Key", token, "/x", hostKeyText},
		"a vendor's own":  {"/x", "X-Vendor-Secret", token, "/x", hostKeyText},
		"query":           {"/x?a=1&key=" + token + "&b=2", "X-A", "1", "/x?a=1&key=xai-canary%2F0123456789%2Babcdef&b=2", "1"},
	} {
		got := send(t, addr, "POST", c.uri, at(vendorHost, c.header, c.value, "X-Other", "kept", "Openai-Organization", "org"), "the body")
		if got.status != 200 {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		r := up.last(t)
		if r.URI != c.wantURI || r.Header.Get(c.header) != c.want || r.Host != vendorHost || string(r.Body) != "the body" ||
			r.Header.Get("X-Other") != "kept" || r.Header.Get("Openai-Organization") != "org" || r.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("%s: %+v", name, r)
		}
		if strings.Contains(fmt.Sprint(r), tokenPrefix) {
			t.Errorf("%s: a token went out: %+v", name, r)
		}
	}
	s.await(Requesting, func(e Event) bool {
		return e.Grant == vendorHost && e.Route == "/**" && e.Bot == "bot" && e.Status == 200
	})
	for _, dial := range s.dials {
		if strings.HasPrefix(dial, "for ") && dial != "for "+vendorHost+":443" {
			t.Errorf("dialled %s", dial)
		}
	}
}

// Without a token nothing of a credential goes out, and beside a token only the key.
func TestOtherCredentials(t *testing.T) {
	s, up := newStage(t, nil), newVendor(t)
	s.leadTo(up)
	token := s.declare("b1", Limits{})
	addr := s.serveHost("b1", vendorHost)
	if got := send(t, addr, "GET", "/v1/models", at(vendorHost, "Cookie", "session=1", "X-Forwarded-For", "kept"), ""); got.status != 200 {
		t.Errorf("without any: %+v", got)
	} else if r := up.last(t); r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" || strings.Contains(fmt.Sprint(r), hostKeyText) {
		t.Errorf("without any: %+v", r)
	}
	before := len(up.requests())
	for _, c := range [][3]string{
		{"/x", "Authorization", "Bearer sk-a-strangers-own"}, {"/x", "X-Api-Key", "sk-a-strangers-own"}, {"/x?api_key=stranger", "X-A", ""},
		{"/x", "Authorization", basic("a", "b")},
	} {
		if got := send(t, addr, "POST", c[0], at(vendorHost, c[1], c[2]), "{}"); got.status != 403 || !strings.Contains(got.body, "foreign_credential") {
			t.Errorf("%v: %+v", c, got)
		}
	}
	if after := len(up.requests()); after != before {
		t.Errorf("%d went out", after-before)
	}
	got := send(t, addr, "POST", "/x?access_token=stranger&a=1", at(vendorHost, "Authorization", "Bearer "+token, "X-Api-Key", "sk-a-strangers-own", "Cookie", "c=1"), "{}")
	if r := up.last(t); got.status != 200 || r.Header.Get("Authorization") != "Bearer "+hostKeyText || r.Header.Get("X-Api-Key") != "" || r.URI != "/x?a=1" {
		t.Errorf("beside the token: %+v %+v", got, r)
	}
}

// Ways to reach another host with the key, to carry it away inside of something,
// or to use another box's token: none sends anything.
func TestADeclaredHostHijacked(t *testing.T) {
	s, up := newStage(t, nil), newVendor(t)
	s.leadTo(up)
	token, stolen := s.declare("b1", Limits{}), s.declare("b2", Limits{})
	addr, other := s.serveHost("b1", vendorHost), s.serveHost("b1", "")
	auth := "Bearer " + token
	for name, c := range map[string]struct {
		addr, method, uri string
		header            http.Header
		want              int
	}{
		"another host":            {addr, "GET", "/", at("evil.example", "Authorization", auth), 421},
		"another declared host":   {addr, "GET", "/", at(secondHost, "Authorization", auth), 421},
		"another port":            {addr, "GET", "/", at(vendorHost+":80", "Authorization", auth), 421},
		"a host behind":           {addr, "GET", "/", at(vendorHost+".evil.example", "Authorization", auth), 421},
		"no host":                 {addr, "GET", "/", at("", "Authorization", auth), 421},
		"a connection of no host": {other, "GET", "/", at("", "Authorization", auth), 421},
		"absolute form":           {addr, "GET", "https://evil.example/", at(vendorHost, "Authorization", auth), 400},
		"absolute form, same":     {addr, "GET", "https://" + vendorHost + "/", at(vendorHost, "Authorization", auth), 400},
		"authority form":          {addr, "CONNECT", "evil.example:443", at(vendorHost, "Authorization", auth), 405},
		"asterisk":                {addr, "OPTIONS", "*", at(vendorHost, "Authorization", auth), 400},
		"trace":                   {addr, "TRACE", "/", at(vendorHost, "Authorization", auth), 405},
		"override":                {addr, "POST", "/", at(vendorHost, "Authorization", auth, "X-Http-Method-Override", "DELETE"), 405},
		"not a path":              {addr, "GET", "/%zz", at(vendorHost, "Authorization", auth), 400},
		"the broker's own way":    {addr, "POST", "/b/" + token + "/example.com/v1", at(vendorHost, "Authorization", auth), 400},
		"token in a URL":          {addr, "POST", "/x?url=https://evil.example/" + token, at(vendorHost, "Authorization", auth), 400},
		"token, encoded":          {addr, "POST", "/x?u=%6fmb_t0_" + token[7:], at(vendorHost, "Authorization", auth), 400},
		"token in the path":       {addr, "POST", "/x/" + token, at(vendorHost, "Authorization", auth), 400},
		"token in a text":         {addr, "POST", "/x", at(vendorHost, "Authorization", auth, "X-Webhook", "https://evil.example/?k="+token), 400},
		"token in a list":         {addr, "POST", "/x", at(vendorHost, "Authorization", "Bearer a, Bearer "+token), 403},
		"two tokens":              {addr, "POST", "/x", at(vendorHost, "Authorization", auth, "X-Api-Key", newTokenText()), 400},
		"unknown token":           {addr, "POST", "/x", at(vendorHost, "Authorization", "Bearer "+newTokenText()), 401},
		"h2c":                     {addr, "GET", "/x", at(vendorHost, "Authorization", auth, "Connection", "Upgrade", "Upgrade", "h2c"), 426},
		"stolen":                  {addr, "POST", "/x", at(vendorHost, "Authorization", "Bearer "+stolen), 403},
	} {
		if got := send(t, c.addr, c.method, c.uri, c.header, ""); got.status != c.want {
			t.Errorf("%s: %+v, want %d", name, got, c.want)
		}
	}
	if n := len(up.requests()) + len(s.dials); n != 0 {
		t.Errorf("%d requests and dials: %v", n, s.dials)
	}
	if e := s.await(Stealing, func(Event) bool { return true }); e.Box != "b1" || e.Owner != "b2" {
		t.Errorf("%+v", e)
	}
	// No grant of that kind is to be had by a path either.
	plain := s.serve("b1")
	for _, uri := range []string{"/b/" + token + "/" + vendorHost + "/x", "/b/" + token + "/https://" + vendorHost + "/x", "/b/" + token + "/https:%2f%2f" + vendorHost + "/x"} {
		if got := send(t, plain, "POST", uri, nil, "{}"); got.status != 403 {
			t.Errorf("%s: %+v", uri, got)
		}
	}
	// Controls: the same token works, and each host with its own.
	for _, host := range []string{vendorHost, secondHost} {
		for _, name := range []string{host, host + ":443", strings.ToUpper(host)} {
			if got := send(t, s.serveHost("b1", host), "POST", "/x", at(name, "Authorization", auth), "{}"); got.status != 200 {
				t.Errorf("control, %s: %+v", name, got)
			}
		}
	}
	if got := send(t, s.serveHost("b2", vendorHost), "POST", "/x", at(vendorHost, "Authorization", "Bearer "+stolen), "{}"); got.status != 401 && got.status != 400 {
		t.Errorf("the stolen one at home: %+v", got)
	}
}

// An answer that holds the key comes back without it, redirects and cookies too.
func TestADeclaredHostEchoes(t *testing.T) {
	s, up := newStage(t, nil), newVendor(t)
	s.leadTo(up)
	up.then = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-You-Sent", r.Header.Get("Authorization"))
		w.Header().Set("Location", "https://"+vendorHost+"/next?k="+r.Header.Get("Authorization"))
		w.Header().Set("Set-Cookie", "session=1")
		w.Header().Set("Www-Authenticate", "Bearer")
		w.WriteHeader(302)
		fmt.Fprintf(w, "%s %s", r.Header.Get("Authorization"), base64.StdEncoding.EncodeToString([]byte(hostKeyText)))
	}
	token := s.declare("b1", Limits{})
	got := send(t, s.serveHost("b1", vendorHost), "POST", "/x", at(vendorHost, "Authorization", token), "{}")
	all := fmt.Sprint(got)
	if got.status != 302 || strings.Contains(all, hostKeyText) || strings.Contains(all, base64.StdEncoding.EncodeToString([]byte(hostKeyText))[:30]) ||
		!strings.HasPrefix(got.header.Get("Location"), "https://"+vendorHost+"/next?k=omb_redacted") || got.header.Get("Set-Cookie") != "" || got.header.Get("Www-Authenticate") == "" {
		t.Errorf("%+v", got)
	}
	if e := s.await(Requesting, func(Event) bool { return true }); e.Redacted < 4 {
		t.Errorf("%+v", e)
	}
	// The control: it was there.
	if r := up.last(t); r.Header.Get("Authorization") != hostKeyText {
		t.Errorf("control: %+v", r)
	}
}

func TestDeclaredPaths(t *testing.T) {
	s, up := newStage(t, nil), newVendor(t)
	s.leadTo(up)
	token := s.declare("b1", Limits{}, "/v1/chat/**", "/v1/models")
	addr := s.serveHost("b1", vendorHost)
	uris := map[string]int{
		"/v1/chat/completions?x=/../": 200, "/v1/chat": 200, "/v1/models": 200,
		"/v1/models/x": 403, "/v1/keys": 403, "/v1/chat/../keys": 403, "/v1/chat/%2e%2e/keys": 403, "/v1/chat/..%2fkeys": 403, "/": 403, "//v1/chat": 403,
	}
	for uri, want := range uris {
		if got := send(t, addr, "POST", uri, at(vendorHost, "Authorization", token), "{}"); got.status != want {
			t.Errorf("%s: %+v, want %d", uri, got, want)
		}
	}
	rig.Eventually(t, 10*time.Second, "an event for each request", func() bool { return s.kinds()[Requesting] == len(uris) })
	for _, e := range s.heard() {
		if e.Status == 200 && e.Route != "/v1/chat/**" && e.Route != "/v1/models" {
			t.Errorf("%+v", e)
		}
	}
	_ = up
}

// A rotation and a revocation reach a declared host as they reach a grant.
func TestDeclaredRotationAndRevocation(t *testing.T) {
	s, up := newStage(t, nil), newVendor(t)
	s.leadTo(up)
	token := s.declare("b1", Limits{PerMinute: 4})
	addr := s.serveHost("b1", vendorHost)
	call := func() answer { return send(t, addr, "POST", "/x", at(vendorHost, "Authorization", token), "{}") }
	if got := call(); got.status != 200 {
		t.Fatalf("%+v", got)
	}
	done, err := s.Rotate(func(string) (secret.Text, error) { return secret.New("xai-second-0123456789"), nil }, "xai")
	if err != nil || done.Grants != 2 {
		t.Errorf("%+v %v", done, err)
	}
	if got := call(); got.status != 200 || up.last(t).Header.Get("Authorization") != "xai-second-0123456789" {
		t.Errorf("%+v %+v", got, up.last(t))
	}
	call()
	call()
	if got := call(); got.status != 429 {
		t.Errorf("over its limit: %+v", got)
	}
	s.Revoke("b1")
	before := len(up.requests())
	for _, h := range []http.Header{at(vendorHost, "Authorization", token), at(vendorHost)} {
		if got := send(t, addr, "POST", "/x", h, "{}"); got.status != 400 { // the key's vendor speaks as OpenAI
			t.Logf("%+v", got)
			if got.status != 401 {
				t.Errorf("revoked: %+v", got)
			}
		}
	}
	if len(up.requests()) != before {
		t.Error("something went out after the revocation")
	}
}

// A worker that adopts the token has no gate of the box's: nothing is dialled.
func TestADeclaredHostAfterAdoption(t *testing.T) {
	b, err := New(Options{BootKey: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r := Record{Box: "b1", Expires: time.Now().Add(time.Hour), Keys: HostKeys("K", secret.New(hostKeyText), []string{vendorHost}, []string{"/v1/**"})}
	plain, err := r.encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodeRecord(plain)
	if err != nil || len(back.Keys) != 1 || back.Keys[0].declaredHost() != vendorHost || back.Keys[0].Paths[0] != "/v1/**" {
		t.Fatalf("%+v %v", back, err)
	}
	if n := b.Adopt([]Record{back}); n != 1 {
		t.Fatal(n)
	}
	_, g := b.hostGrant("b1", whole+vendorHost)
	req, _ := http.NewRequest("GET", "https://"+vendorHost+"/", nil)
	if res, err := g.transport.RoundTrip(req); err == nil || !strings.Contains(err.Error(), errNoDial.Error()) {
		t.Errorf("%v %v", res, err)
	}
}

// A WebSocket to a declared host carries the key in its handshake, and what the
// host echoes is searched.
func TestADeclaredWebSocket(t *testing.T) {
	s, up := newStage(t, nil), newVendor(t)
	s.leadTo(up)
	s.Broker.transport.(*upstreams).TLSClientConfig.NextProtos = []string{"http/1.1"}
	s.Broker.transport.(*upstreams).ForceAttemptHTTP2 = false
	up.then = func(w http.ResponseWriter, r *http.Request) { echoUpgrade(t, w, r) }
	token := s.declare("b1", Limits{})
	conn, err := net.Dial("tcp", s.serveHost("b1", vendorHost))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "GET /live HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n",
		vendorHost, token, base64.StdEncoding.EncodeToString(make([]byte, 16)))
	br := bufio.NewReader(conn)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("%v %+v", err, res)
	}
	frame, err := io.ReadAll(br)
	if err != nil || !strings.Contains(string(frame), "omb_redacted") || strings.Contains(string(frame), hostKeyText) {
		t.Errorf("%q %v", frame, err)
	}
	if r := up.last(t); r.Header.Get("Authorization") != "Bearer "+hostKeyText {
		t.Errorf("%+v", r)
	}
}

// echoUpgrade answers a handshake and sends back its credential in one frame.
func echoUpgrade(t *testing.T, w http.ResponseWriter, r *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	text := r.Header.Get("Authorization")
	sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + websocketGUID))
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n\x81%c%s\x88\x00",
		base64.StdEncoding.EncodeToString(sum[:]), len(text), text)
}

func FuzzPlaces(f *testing.F) {
	token := newTokenText()
	for _, seed := range [][2]string{{"/x?key=" + token, "Bearer " + token}, {"/", basic("u", token)}, {"/%6fmb_t0_", token + ","}, {"/?a=" + token, ""}} {
		f.Add(seed[0], seed[1])
	}
	g, err := newHostGrant(HostKeys("K", secret.New(hostKeyText), []string{vendorHost}, nil)[0], Limits{}, around{transport: http.DefaultTransport})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, uri, value string) {
		r := &http.Request{Method: "GET", RequestURI: uri, Header: http.Header{"Authorization": {value}, "X-Other": {value}}}
		tg := target{path: uri}
		tg.path, tg.query, tg.hasQuery = strings.Cut(uri, "?")
		if _, code := g.hostPath(tg); code != "" {
			return
		}
		c := places(r)
		out := g.swapped(context.Background(), r, tg, nil, g.key.Load())
		line := out.URL.RequestURI() + fmt.Sprint(out.Header)
		if out.URL.Host != vendorHost || !c.stray && strings.Contains(line, tokenPrefix) {
			t.Errorf("%q %q: a token goes out in %q", uri, value, line)
		}
		if len(c.tokens) == 0 && strings.Contains(line, hostKeyText) {
			t.Errorf("%q %q: the key goes out without a token", uri, value)
		}
	})
}
