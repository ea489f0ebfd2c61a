package broker

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// MCPServer is one URL server of a conversation, with the headers that stay
// outside of its boxes.
type MCPServer struct {
	Name    string
	URL     string
	Headers map[string]secret.Text
	Refs    map[string]string // names of the secrets that headers came from, by header: Rotate reads them again
}

const (
	mcpPrefix     = "mcp-"
	mcpServersMax = 64
	mcpNameMax    = 64
)

// CheckMCPServer tells what is wrong with a server, in words without any of
// its values.
func CheckMCPServer(s MCPServer) error {
	_, err := newMCPServer(s, http.DefaultTransport) // which is not used
	return err
}

// CheckMCPName wants a name that can stand in a path, and in the name of a
// variable.
func CheckMCPName(name string) error {
	if name == "" || len(name) > mcpNameMax || strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-' || r == '.')
	}) {
		return reason.New(reason.BadSpec, "an MCP server's name is made of letters, digits and _ - . only, at most %d", mcpNameMax)
	}
	return nil
}

// MCPEnv is the variable in which a box finds a server's address.
func MCPEnv(name string) string {
	return "BOTBOX_MCP_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
}

// ownHeaders are those that a server's configuration cannot set: what they say
// is the client's business, or one connection's.
var ownHeaders = newHeaderSet([]headerRule{
	{"host", "it follows from the address"},
	{"connection", whyHop},
	{"keep-alive", whyHop},
	{"proxy-*", whyHop},
	{"te", whyHop},
	{"trailer", whyHop},
	{"transfer-encoding", whyHop},
	{"upgrade", whyHop},
	{"expect", whyHop},
	{"content-*", "belongs to a body that the client writes"},
	{"accept-encoding", "the broker has to read the answer"},
	{"mcp-*", "mirrors the message, and the client writes that"},
	{"last-event-id", "the client knows how far it read"},
	{"x-http-method*", "asks the upstream to read another method"},
	{"x-method-override", "asks the upstream to read another method"},
})

// mcpServer is the right to call one server with its headers.
type mcpServer struct {
	name      string
	base      *url.URL // exactly as configured
	transport http.RoundTripper
	headers   atomic.Pointer[mcpHeaders]
	refs      map[string]string
}

// mcpHeaders are what a request carries. A rotation puts others in their place.
type mcpHeaders struct {
	values map[string]secret.Text // by canonical name
	former []string               // secrets that were here before: the server may remember them
	live   *liveKey               // with the redactor; it has no key of its own
}

func newMCPServer(s MCPServer, transport http.RoundTripper) (*mcpServer, error) {
	if err := CheckMCPName(s.Name); err != nil {
		return nil, err
	}
	base, problem := parseUpstream(s.URL)
	if problem != "" {
		return nil, reason.New(reason.BadSpec, "the URL of the MCP server %s %s", s.Name, problem)
	}
	values := map[string]secret.Text{}
	refs := map[string]string{}
	for name, value := range s.Headers {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !headerName(name) || ownHeaders.has(name) && !strings.EqualFold(name, "Content-Type"):
			return nil, reason.New(reason.BadSpec, "the MCP server %s has a header %q, which cannot be set for it", s.Name, name)
		case !headerValue(value):
			return nil, reason.New(reason.BadSpec, "the MCP server %s: header %s is empty, or holds a byte that no header has", s.Name, name)
		case !values[canonical].Empty():
			return nil, reason.New(reason.BadSpec, "the MCP server %s has the header %s twice", s.Name, canonical)
		}
		values[canonical] = value
		if ref := s.Refs[name]; ref != "" {
			refs[canonical] = ref
		}
	}
	m := &mcpServer{name: s.Name, base: base, transport: transport, refs: refs}
	m.put(values, nil)
	return m, nil
}

// headerName: an RFC 9110 token.
func headerName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

// headerValue: visible ASCII and blanks within.
func headerValue(s secret.Text) bool {
	v := s.Reveal()
	return v != "" && strings.TrimSpace(v) == v && !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' })
}

func (m *mcpServer) put(values map[string]secret.Text, former []string) {
	secrets := slices.Clone(former)
	for name, value := range values {
		if m.refs[name] != "" || secretHeader(name, value.Reveal()) {
			secrets = append(secrets, secretsIn(value.Reveal())...)
		}
	}
	for param := range strings.SplitSeq(m.base.RawQuery, "&") {
		if _, value, _ := strings.Cut(param, "="); credentialParam(param) || secretHeader(param[:strings.IndexByte(param+"=", '=')], value) {
			plain, err := url.QueryUnescape(value)
			if err != nil {
				plain = value
			}
			secrets = append(secrets, plain, value)
		}
	}
	for segment := range strings.SplitSeq(m.base.Path, "/") {
		if secretSegment(segment) {
			secrets = append(secrets, segment)
		}
	}
	m.headers.Store(&mcpHeaders{values, former, &liveKey{redactor: newRedactor(secrets...)}})
}

// secretHeader tells whether a plain value is looked for in answers. A value
// such as a region's name is not: answers are full of those words.
func secretHeader(name, value string) bool {
	name = strings.ToLower(name)
	return requestDrops.has(name) || len(value) >= 16 || slices.ContainsFunc(
		[]string{"key", "token", "secret", "auth", "pass", "session", "cookie", "cred", "sign"},
		func(part string) bool { return strings.Contains(name, part) })
}

// secretSegment: some services put the key into the path. A key is a long run
// of digits and letters, or a UUID; a name has dashes between its words.
func secretSegment(s string) bool {
	run := strings.FieldsFunc(s, func(r rune) bool { return r == '-' || r == '_' || r == '.' || r == '~' })
	if uuid := len(s) == 36 && len(run) == 5 && strings.Trim(s, "0123456789abcdefABCDEF-") == ""; uuid {
		return true
	}
	return slices.ContainsFunc(run, func(w string) bool {
		return len(w) >= 20 && strings.ContainsAny(w, "0123456789") && strings.ContainsFunc(w, func(r rune) bool { return r > '9' })
	})
}

// secretsIn gives the parts of a header's value that an answer may show by
// themselves: what follows the scheme, and the name and password of Basic.
func secretsIn(value string) []string {
	all := []string{value}
	scheme, rest, ok := strings.Cut(value, " ")
	if !ok {
		return all
	}
	all = append(all, strings.TrimSpace(rest))
	if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil && strings.EqualFold(scheme, "basic") {
		_, password, _ := strings.Cut(string(plain), ":")
		all = append(all, string(plain), password)
	}
	return all
}

// take gives the server the values of another turn, and tells whether any is
// another one.
func (m *mcpServer) take(values map[string]secret.Text) bool {
	old := m.headers.Load()
	changed := false
	former := slices.Clone(old.former)
	for name, value := range values {
		if was := old.values[name]; was.Reveal() != value.Reveal() {
			changed = true
			if m.refs[name] != "" || secretHeader(name, was.Reveal()) {
				former = append(former, secretsIn(was.Reveal())...)
			}
		}
	}
	if !changed {
		return false
	}
	if most := 4 * formerKeys; len(former) > most {
		former = former[len(former)-most:]
	}
	m.put(values, former)
	return true
}

// exchange puts one secret in the place of what its reference gave before.
func (m *mcpServer) exchange(fresh map[string]secret.Text) bool {
	values := maps.Clone(m.headers.Load().values)
	for name, ref := range m.refs {
		if text, ok := fresh[ref]; ok {
			values[name] = text
		}
	}
	return m.take(values)
}

func (m *mcpServer) forget() {
	if t, ok := m.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// plain gives the server back as it was asked for.
func (m *mcpServer) plain() MCPServer {
	return MCPServer{m.name, m.base.String(), m.headers.Load().values, m.refs}
}

// target gives the upstream's address for what the box asked for. The
// configured address itself is taken to the byte: a server that knows /mcp may
// know no /mcp/, and the other way round. Nothing is decoded or ordered anew.
func (m *mcpServer) target(t target) *url.URL {
	u := *m.base
	if !t.bare {
		u.RawPath = strings.TrimSuffix(m.base.EscapedPath(), "/") + t.path
		u.Path, _ = url.PathUnescape(u.RawPath) // checkPath has tried it
	}
	query := m.clientQuery(t.query)
	u.ForceQuery = m.base.ForceQuery || t.hasQuery && t.query == ""
	if u.RawQuery != "" && query != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += query
	return &u
}

// clientQuery drops the client's parameters of a name with which the
// configured address signs in.
func (m *mcpServer) clientQuery(raw string) string {
	var own []string
	for param := range strings.SplitSeq(m.base.RawQuery, "&") {
		if name := paramName(param); name != "" && (credentialParam(param) || secretHeader(name, "")) {
			own = append(own, name)
		}
	}
	if len(own) == 0 || raw == "" {
		return raw
	}
	var kept []string
	for param := range strings.SplitSeq(raw, "&") {
		if !slices.Contains(own, paramName(param)) {
			kept = append(kept, param)
		}
	}
	return strings.Join(kept, "&")
}

func paramName(param string) string {
	name, _, _ := strings.Cut(param, "=")
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	return strings.ToLower(name)
}

// request makes the upstream's request.
func (m *mcpServer) request(ctx context.Context, r *http.Request, u *url.URL, headers *mcpHeaders) *http.Request {
	h := http.Header{}
	pass(h, r.Header, requestDrops)
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil
	}
	h["Accept-Encoding"] = []string{"identity"}
	for name, value := range headers.values {
		if (name == "Accept" || name == "Content-Type") && len(h[name]) > 0 {
			continue // as in every client: the message decides
		}
		for have := range h { // X_Key would be a second X-Key to some upstreams
			if strings.EqualFold(strings.ReplaceAll(have, "_", "-"), name) {
				delete(h, have)
			}
		}
		h[name] = []string{value.Reveal()}
	}
	return (&http.Request{
		Method: r.Method, URL: u, Header: h, Body: http.NoBody,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
}

// sameOrigin compares scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		if p := u.Port(); p != "" {
			return p
		}
		return map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// follow reads where an upstream points to, seen from the address that was
// asked. foreign is the host that it names when that is another origin.
func follow(from *url.URL, to string) (next *url.URL, foreign string) {
	u, err := from.Parse(strings.TrimSpace(to))
	switch {
	case err != nil || to == "" || u.Hostname() == "" || u.User != nil || u.Opaque != "":
		return nil, "an address that cannot be read"
	case !sameOrigin(from, u):
		host := u.Scheme + "://" + u.Host
		if len(host) > 100 || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' }) {
			host = "another host"
		}
		return nil, host
	case u.EscapedPath() != "" && !checkPath(u.EscapedPath()) || !checkQuery(u.RawQuery):
		return nil, "an address that can be read in two ways"
	}
	u.Fragment, u.RawFragment = "", ""
	return u, ""
}

// String keeps values out of every message.
func (s MCPServer) String() string { return "MCP server " + s.Name }

// Format is String for every verb.
func (s MCPServer) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// WithHeaders sends requests to this server with its headers, and sends none
// to any other origin.
func (s MCPServer) WithHeaders(to http.RoundTripper) http.RoundTripper { return &withHeaders{to, s} }

type withHeaders struct {
	to     http.RoundTripper
	server MCPServer
}

func (w *withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	origin, err := url.Parse(w.server.URL)
	if err != nil || !sameOrigin(origin, r.URL) {
		return nil, reason.New(reason.MCPFailed, "the address leads to another origin")
	}
	r = r.Clone(r.Context())
	for name, value := range w.server.Headers {
		if name = http.CanonicalHeaderKey(name); name != "Accept" && name != "Content-Type" {
			r.Header[name] = []string{value.Reveal()}
		}
	}
	return w.to.RoundTrip(r)
}

// CloseIdleConnections is for http.Client's method of that name.
func (w *withHeaders) CloseIdleConnections() {
	if t, ok := w.to.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}
