package broker

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// Loopback is a server on this machine's own loopback, a model's mostly, that
// whoever asked for the box lets it call. It gets no credential: neither the
// client's nor one of ours.
type Loopback struct {
	Name string // the grant's in the path
	URL  string // of the server; what is below it can be called, and nothing else
}

// MaxLoopbacks bounds the servers of one box.
const MaxLoopbacks = 16

// loopbackRoutes are what a model's server is asked. Its base path confines the
// rest: a server whose URL ends with /v1 is not asked to pull or to delete a
// model under /api.
var loopbackRoutes = []route{
	{"POST GET HEAD", "/**", false, "inference and model discovery, below the base path that was declared"},
}

// loopbackNameBytes are those of a name, which stands in a path and in the name
// of a variable.
const loopbackNameBytes = "abcdefghijklmnopqrstuvwxyz0123456789-"

// parse gives the server's address with a literal host, so that no name is ever
// looked up, or says what is wrong with it.
func (l Loopback) parse() (u *url.URL, problem string) {
	_, taken := providerNamed(l.Name)
	switch {
	case l.Name == "" || len(l.Name) > 32 || strings.Trim(l.Name, loopbackNameBytes) != "" || l.Name[0] < 'a':
		return nil, "has a name that is not a small letter with up to 31 small letters, digits and hyphens"
	case taken || strings.HasPrefix(l.Name, "mcp-"):
		return nil, "has the name of another grant"
	}
	u, problem = parseUpstream(l.URL)
	switch {
	case problem != "":
		return nil, problem
	case u.Scheme != "http":
		return nil, "is not an http URL"
	case u.Port() == "":
		return nil, "names no port"
	case strings.Contains(l.URL, "?"):
		return nil, "has a query"
	case u.Hostname() == "localhost":
		u.Host = "127.0.0.1:" + u.Port()
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil || !addr.IsLoopback() || addr.Is4In6() || addr.Zone() != "" {
		return nil, "names no address of this machine's own loopback (127.0.0.1, [::1] or localhost)"
	}
	return u, ""
}

// newLoopback makes the grant of one server.
func newLoopback(l Loopback, limits Limits, transport http.RoundTripper) (*grant, error) {
	base, problem := l.parse()
	if problem != "" {
		return nil, reason.New(reason.BadSpec, "the spec is not usable: field net.loopback_upstreams: %q %s", l.Name, problem)
	}
	if transport == nil {
		transport = newUpstreams(newTransport())
	}
	p := &provider{name: l.Name, routes: loopbackRoutes, shape: plainShape}
	g := &grant{provider: p, base: base, transport: transport, meter: newMeter(limits)}
	g.key.Store(newLiveKey(secret.Text{}, nil))
	return g, nil
}

// addLoopbacks gives each server a grant of its own.
func addLoopbacks(grants map[string]*grant, r Record, transport http.RoundTripper) error {
	if len(r.Loopbacks) > MaxLoopbacks {
		return reason.New(reason.BadSpec, "the spec is not usable: field net.loopback_upstreams: at most %d servers", MaxLoopbacks)
	}
	for _, l := range r.Loopbacks {
		g, err := newLoopback(l, r.Limits, transport)
		if err != nil {
			return err
		}
		if grants[l.Name] != nil {
			return reason.New(reason.BadSpec, "the spec is not usable: field net.loopback_upstreams: %q stands twice", l.Name)
		}
		grants[l.Name] = g
	}
	return nil
}

// Port gives the port of the server, "" if its URL is not one that can be used.
func (l Loopback) Port() string {
	if u, problem := l.parse(); problem == "" {
		return u.Port()
	}
	return ""
}

// LoopbackEnv is the variable that names a server's address to the box.
func LoopbackEnv(name string) string {
	return "BOTBOX_UPSTREAM_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
