package broker

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// Key is a provider key that a box gets a token for.
type Key struct {
	Provider string // a row of the table: "anthropic", "openai", "gemini"
	EnvName  string // the variable it came in; it decides the header it goes out in
	Secret   secret.Text
	Upstream string // absolute http or https URL of the provider's API
}

// Take removes from env every key that the broker can stand for, and the base
// URLs that belong to them. Keys of one provider come in the provider's order
// of preference. raw names the credentials that stay in env because no
// base URL brings them here. An error names the variable, never its value, and
// leaves env as it was.
func Take(env map[string]secret.Text) (keys []Key, raw []string, err error) {
	var taken []string
	for i := range providers {
		p := &providers[i]
		upstream := p.base
		if own := env[p.baseEnv]; !own.Empty() {
			upstream = own.Reveal()
		}
		if _, problem := parseUpstream(upstream); problem != "" {
			return nil, nil, reason.New(reason.BadSpec, "%s %s", p.baseEnv, problem)
		}
		taken = append(taken, p.baseEnv)
		for _, v := range p.keys {
			taken = append(taken, v.env)
			if env[v.env].Empty() {
				continue
			}
			if !sendable(env[v.env]) {
				return nil, nil, reason.New(reason.BadSpec, "%s holds a line break, a blank or another byte that no key has", v.env)
			}
			keys = append(keys, Key{p.name, v.env, env[v.env], upstream})
		}
	}
	for _, name := range taken {
		delete(env, name)
	}
	for _, row := range unbrokerable {
		if !env[row.env].Empty() {
			raw = append(raw, row.env)
		}
	}
	slices.Sort(raw)
	return keys, raw, nil
}

// sendable: visible ASCII, so that a key stands in a header as it is.
func sendable(s secret.Text) bool {
	return !strings.ContainsFunc(s.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' })
}

// parseUpstream says what is wrong in words that do not hold the URL: it may
// have a password in it, and url.Parse quotes it.
func parseUpstream(raw string) (u *url.URL, problem string) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, "is not an http or https URL"
	case u.User != nil:
		return nil, "has a user name or a password in it"
	case strings.Contains(raw, "#"):
		return nil, "has a fragment"
	case u.Opaque != "" || u.Hostname() == "":
		return nil, "names no host"
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, "names a port that does not exist"
		}
	}
	if path := u.EscapedPath(); path != "" && !checkPath(path) {
		return nil, "has a path that can be read in two ways"
	}
	if !checkQuery(u.RawQuery) {
		return nil, "has a byte in its query that belongs to none"
	}
	return u, ""
}

// grant is the right to call one upstream with one key.
type grant struct {
	provider  *provider
	keyVar    keyVar
	secret    secret.Text
	base      *url.URL
	redactor  *redactor
	scanBody  bool // the upstream is not the vendor itself: it may echo what it got
	transport http.RoundTripper
}

func newGrant(k Key, transport http.RoundTripper) (*grant, error) {
	p, ok := providerNamed(k.Provider)
	if !ok {
		return nil, reason.New(reason.BadSpec, "the broker has no provider %q", k.Provider)
	}
	v, _, ok := p.keyVarNamed(k.EnvName)
	if !ok {
		return nil, reason.New(reason.BadSpec, "provider %s takes no key from %q", p.name, k.EnvName)
	}
	if k.Secret.Empty() || !sendable(k.Secret) {
		return nil, reason.New(reason.BadSpec, "%s is empty or holds a byte that no key has", k.EnvName)
	}
	base, problem := parseUpstream(k.Upstream)
	if problem != "" {
		return nil, reason.New(reason.BadSpec, "%s %s", p.baseEnv, problem)
	}
	if transport == nil {
		transport = newTransport()
	}
	return &grant{
		provider: p, keyVar: v, secret: k.Secret, base: base, transport: transport,
		redactor: newRedactor(k.Secret.Reveal()),
		scanBody: base.String() != p.base,
	}, nil
}

// inject puts the key into a header from which every credential was removed.
func (g *grant) inject(h http.Header) {
	h[g.keyVar.header] = []string{g.keyVar.scheme + g.secret.Reveal()}
}

// forget drops the key and closes idle connections to the upstream.
func (g *grant) forget() {
	if t, ok := g.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// digest is what the broker keeps of a token: HMAC-SHA256 under the boot key.
type digest [32]byte

// token is what one turn's box may use. A dead token keeps its box, so that it
// is told apart from an unknown one, but neither grants nor keys.
type token struct {
	digest                 digest
	box, bot, conversation string
	expires                time.Time
	grants                 map[string]*grant // nil when dead
	ctx                    context.Context   // ends with the token
	cancel                 context.CancelFunc
	timer                  *time.Timer
}

// newGrants makes one grant for each provider. Of several keys for the same
// provider the most preferred one is sent; the others only leave the box.
func newGrants(keys []Key, transport http.RoundTripper) (map[string]*grant, error) {
	grants, rank := map[string]*grant{}, map[string]int{}
	for _, k := range keys {
		g, err := newGrant(k, transport)
		if err != nil {
			return nil, err
		}
		_, n, _ := g.provider.keyVarNamed(k.EnvName)
		if have, ok := rank[k.Provider]; ok && have <= n {
			continue
		}
		grants[k.Provider], rank[k.Provider] = g, n
	}
	return grants, nil
}

// Record is a living token as the store keeps it: all that a new worker needs
// to go on serving it, except the token itself, which nobody keeps.
type Record struct {
	Digest                 [32]byte
	Box, Bot, Conversation string
	Expires                time.Time
	Keys                   []Key
}

// plainRecord is a Record before it is sealed: secret.Text refuses to encode.
type plainRecord struct {
	Digest                 []byte
	Box, Bot, Conversation string
	Expires                time.Time
	Keys                   []plainKey
}

type plainKey struct{ Provider, EnvName, Secret, Upstream string }

func (r Record) encode() ([]byte, error) {
	plain := plainRecord{r.Digest[:], r.Box, r.Bot, r.Conversation, r.Expires, nil}
	for _, k := range r.Keys {
		plain.Keys = append(plain.Keys, plainKey{k.Provider, k.EnvName, k.Secret.Reveal(), k.Upstream})
	}
	return json.Marshal(plain)
}

func decodeRecord(data []byte) (Record, error) {
	var plain plainRecord
	if err := json.Unmarshal(data, &plain); err != nil {
		return Record{}, err
	}
	r := Record{Box: plain.Box, Bot: plain.Bot, Conversation: plain.Conversation, Expires: plain.Expires}
	copy(r.Digest[:], plain.Digest)
	for _, k := range plain.Keys {
		r.Keys = append(r.Keys, Key{k.Provider, k.EnvName, secret.New(k.Secret), k.Upstream})
	}
	return r, nil
}
