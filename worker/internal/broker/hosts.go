package broker

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/openmausbot/botbox/worker/internal/secret"
)

// Dial opens a connection to a declared host, at port 443, as the box itself
// would be let: by its own lists and the machine's address policy.
type Dial func(ctx context.Context, host string) (net.Conn, error)

// whole is the scheme of a declared host's grant. No name of a grant in a path
// has a slash, so such a grant cannot be asked for that way.
const whole = "https://"

// HostKeys are a key's, for the hosts whose TLS the gate ends: in requests to
// them, and nowhere else, the token of the box becomes the key. No paths are
// all paths.
func HostKeys(env string, key secret.Text, hosts, paths []string) []Key {
	keys := make([]Key, len(hosts))
	for i, host := range hosts {
		keys[i] = Key{Provider: whole + host, EnvName: env, Secret: key, Upstream: whole + host, Paths: paths}
	}
	return keys
}

// declaredHost is the host that a key is for; empty for a provider's key.
func (k Key) declaredHost() string {
	host, ok := strings.CutPrefix(k.Provider, whole)
	if !ok {
		return ""
	}
	return host
}

// newHostGrant makes the grant of a declared host. Its answers are searched for
// the key, for nobody knows what the host may send back.
func newHostGrant(k Key, limits Limits, around around) (*grant, error) {
	if err := checkKey(k.EnvName, k.Secret); err != nil {
		return nil, err
	}
	host := k.declaredHost()
	g := &grant{
		provider: &provider{name: host, shape: shapeOfEnv(k.EnvName)}, keyVar: keyVar{env: k.EnvName},
		base: &url.URL{Scheme: "https", Host: host}, host: host, paths: k.Paths, dial: around.dial,
		echoes: true, transport: around.transport, meter: newMeter(limits),
	}
	if g.transport == nil {
		own := newTransport()
		own.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) {
			if g.dial == nil || addr != host+":443" {
				return nil, errNoDial
			}
			return g.dial(ctx, host)
		}
		g.transport = own
	}
	g.key.Store(newLiveKey(k.Secret, nil))
	return g, nil
}

// errNoDial: this worker has no gate of that box's.
var errNoDial = errors.New("there is no way to dial this host")

// shapeOfEnv goes by the provider that has such a key.
func shapeOfEnv(env string) shape {
	for i := range providers {
		if _, _, ok := providers[i].keyVarNamed(env); ok {
			return providers[i].shape
		}
	}
	return plainShape
}

// declaredConn is a connection whose TLS the gate has ended.
type declaredConn interface{ DeclaredHost() string }

type hostKey struct{}

// ServeHosts answers a box on the connections to its declared hosts, until the
// listener is closed. Each of them tells its host.
func (b *Broker) ServeHosts(l net.Listener, box string) error {
	return b.serve(l, box, &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _ := r.Context().Value(hostKey{}).(string)
			b.answer(box, w, r, func(x *exchange) (call, string) { return b.admitHost(box, host, x) })
		}),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if d, ok := c.(declaredConn); ok {
				return context.WithValue(ctx, hostKey{}, d.DeclaredHost())
			}
			return ctx
		},
	})
}

// admitHost says what a request to a declared host may do.
func (b *Broker) admitHost(box, host string, x *exchange) (call, string) {
	if code := checkForm(x.r); code != "" {
		return call{}, code
	}
	if name := strings.ToLower(x.r.Host); host == "" || name != host && name != host+":443" {
		return call{}, "misdirected"
	}
	x.event.Grant = host
	found := places(x.r)
	token, g, code := b.authoriseHost(box, host, found)
	if token != nil {
		x.event.Bot, x.event.Conversation = token.bot, token.conversation
	}
	if g != nil {
		x.shape = g.provider.shape
	}
	if code == "wrong_box" {
		b.stolen(box, token)
	}
	if code != "" {
		return call{}, code
	}
	t := target{path: x.r.RequestURI}
	t.path, t.query, t.hasQuery = strings.Cut(t.path, "?")
	pattern, code := g.hostPath(t)
	switch {
	case code != "":
		return call{}, code
	case found.stray:
		return call{}, "token_misplaced"
	}
	x.event.Route = pattern
	if !asksUpgrade(x.r) {
		return call{token: token, grant: g, target: t}, ""
	}
	if code := g.checkHandshake(x.r); code != "" {
		return call{}, code
	}
	return call{token: token, grant: g, websocket: &websocketRoute{path: pattern}, target: t}, ""
}

// authoriseHost finds the grant for a request. One without a token is sent
// without a key; one with a credential that is not ours is refused, for it
// would use the host in another's name.
func (b *Broker) authoriseHost(box, host string, found credentials) (*token, *grant, string) {
	switch len(found.tokens) {
	case 0:
		t, g := b.hostGrant(box, whole+host)
		if g == nil {
			return nil, nil, "token_revoked"
		}
		if found.foreign {
			return t, g, "foreign_credential"
		}
		return t, g, ""
	case 1:
		return b.authorise(box, found.tokens[0], whole+host)
	}
	return nil, nil, "bad_request"
}

// hostGrant is the box's living grant for a host, asked for without a token.
func (b *Broker) hostGrant(box, name string) (*token, *grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.tokens {
		if t.box == box && t.grants[name] != nil && b.now().Before(t.expires) {
			return t, t.grants[name]
		}
	}
	return nil, nil
}

// hostPath finds the declared pattern for a path. Where every path is open, it
// need only be one that a request line can hold.
func (g *grant) hostPath(t target) (pattern, code string) {
	plain := strings.HasPrefix(t.path, "/") && !t.hasQuery || checkQuery(t.query)
	for i := range len(t.path) {
		plain = plain && pathByte(t.path[i])
	}
	if _, err := url.PathUnescape(t.path); err != nil || !plain {
		return "", "bad_request"
	}
	if len(g.paths) == 0 {
		return "/**", ""
	}
	i := slices.IndexFunc(g.paths, func(p string) bool { return checkPath(t.path) && matchPath(p, t.path) })
	if i < 0 {
		return "", "path_refused"
	}
	return g.paths[i], ""
}
