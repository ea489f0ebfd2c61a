package broker

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// Key is a provider key that a box gets a token for.
type Key struct {
	Provider string // a row of the table: "anthropic", "openai", "gemini"
	EnvName  string // the variable it came in; it decides the header it goes out in
	Secret   secret.Text
	Upstream string   // absolute http or https URL of the provider's API
	Login    string   // the sign-in that the key comes from; then there is no Secret
	Paths    []string // of a declared host: which are open; see HostKeys
}

// Take removes from env every key that the broker can stand for in a box of
// that engine, and the base URLs that belong to the providers. Keys of one
// provider come in the provider's order of preference. raw names the
// credentials that stay in env because nothing brings them here. An error
// names the variable, never its value, and leaves env as it was.
func Take(env map[string]secret.Text, engine string) (keys []Key, raw []string, err error) {
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
			switch {
			case v.only != "" && v.only != engine:
				if !env[v.env].Empty() {
					raw = append(raw, v.env)
				}
				continue
			case env[v.env].Empty():
			case !sendable(env[v.env]):
				return nil, nil, reason.New(reason.BadSpec, "%s holds a line break, a blank or another byte that no key has", v.env)
			default:
				keys = append(keys, Key{Provider: p.name, EnvName: v.env, Secret: env[v.env], Upstream: upstream})
			}
			taken = append(taken, v.env)
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
	key       atomic.Pointer[liveKey]
	base      *url.URL
	host      string   // of a declared one; empty for a provider's grant
	paths     []string // of a declared host; none = every path
	dial      Dial     // to a declared host
	login     Login    // where the key comes from; nil for one that was given
	row       loginRow // of the login
	echoes    bool     // the upstream is not the vendor itself: it may send back what it got
	meter     *meter
	transport http.RoundTripper
}

// liveKey is the key that new requests carry. Rotation puts another one in its
// place; a request keeps the one that it began with.
type liveKey struct {
	secret   secret.Text
	former   []secret.Text // what this grant carried before: an upstream may remember them
	redactor *redactor
	account  string // of a sign-in
}

// formerKeys is how many rotated keys are still looked for in responses.
const formerKeys = 4

func newLiveKey(s secret.Text, former []secret.Text) *liveKey {
	if len(former) > formerKeys {
		former = former[len(former)-formerKeys:]
	}
	all := []string{s.Reveal()}
	for _, f := range former {
		all = append(all, f.Reveal())
	}
	return &liveKey{secret: s, former: former, redactor: newRedactor(all...)}
}

// inPlaceOf gives the key that goes out in the place of a token.
func (k *liveKey) inPlaceOf(string) string { return k.secret.Reveal() }

// exchangeKey makes new requests carry another key, and tells whether it is
// another one.
func (g *grant) exchangeKey(s secret.Text) bool {
	old := g.key.Load()
	if old.secret.Reveal() == s.Reveal() {
		return false
	}
	g.key.Store(newLiveKey(s, append(slices.Clone(old.former), old.secret)))
	return true
}

// inspects tells whether the broker has to read the bodies of responses.
func (g *grant) inspects() bool { return g.echoes || g.meter.limits.Tokens > 0 }

func newGrant(k Key, limits Limits, around around) (*grant, error) {
	transport := around.transport
	p, ok := providerNamed(k.Provider)
	if !ok {
		return nil, reason.New(reason.BadSpec, "the broker has no provider %q", k.Provider)
	}
	v, _, ok := p.keyVarNamed(k.EnvName)
	if !ok {
		return nil, reason.New(reason.BadSpec, "provider %s takes no key from %q", p.name, k.EnvName)
	}
	if err := checkKey(k.EnvName, k.Secret); err != nil {
		return nil, err
	}
	base, problem := parseUpstream(k.Upstream)
	if problem != "" {
		return nil, reason.New(reason.BadSpec, "%s %s", p.baseEnv, problem)
	}
	if transport == nil {
		transport = newUpstreams(newTransport())
	}
	g := &grant{
		provider: p, keyVar: v, base: base, transport: transport,
		echoes: base.String() != p.base, meter: newMeter(limits),
	}
	g.key.Store(newLiveKey(k.Secret, nil))
	return g, nil
}

// checkKey wants a key that can stand in a header. The error names where it
// came from, never what it is.
func checkKey(from string, s secret.Text) error {
	if s.Empty() || !sendable(s) {
		return reason.New(reason.BadSpec, "%s is empty or holds a byte that no key has", from)
	}
	return nil
}

// inject puts the key into a header from which every credential was removed. A
// loopback server has none. A vendor that speaks Anthropic's language beside
// its own reads the key where Anthropic does, in requests that say so.
func (g *grant) inject(h http.Header, k *liveKey) {
	if k.secret.Empty() {
		return
	}
	if g.login != nil {
		g.row.sign(h, k.account)
	}
	if g.provider.anthropicToo && h["Anthropic-Version"] != nil {
		h["X-Api-Key"] = []string{k.secret.Reveal()}
		return
	}
	h[g.keyVar.header] = []string{g.keyVar.scheme + k.secret.Reveal()}
}

// forget closes idle connections to the upstream.
func (g *grant) forget() {
	if t, ok := g.transport.(interface{ CloseIdleConnections() }); ok {
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
	record                 Record            // without keys when dead
	grants                 map[string]*grant // nil when dead
	ctx                    context.Context   // ends with the token
	cancel                 context.CancelFunc
	timer                  *time.Timer
}

// around is what grants are made with.
type around struct {
	transport http.RoundTripper // nil = one of its own for each grant
	dial      Dial              // to declared hosts
	login     func(name string) (Login, error)
}

// newGrants makes one grant for each provider and for each loopback server. Of several keys for the same
// provider the most preferred one is sent; the others only leave the box.
func newGrants(r Record, around around) (map[string]*grant, error) {
	grants, rank := map[string]*grant{}, map[string]int{}
	for _, k := range r.Keys {
		make := newGrant
		if k.declaredHost() != "" {
			make = newHostGrant
		} else if k.Login != "" {
			make = newLoginGrant
		}
		g, err := make(k, r.Limits, around)
		if err != nil {
			return nil, err
		}
		_, n, _ := g.provider.keyVarNamed(k.EnvName)
		if have, ok := rank[k.Provider]; ok && have <= n {
			continue
		}
		grants[k.Provider], rank[k.Provider] = g, n
	}
	return grants, addLoopbacks(grants, r, around.transport)
}

// Record is a living token as the store keeps it: all that a new worker needs
// to go on serving it, except the token itself, which nobody keeps.
type Record struct {
	Digest                 [32]byte
	Box, Bot, Conversation string
	Expires                time.Time
	Keys                   []Key
	Refs                   map[string]string // the secret's name, by the variable of its key
	Limits                 Limits
	Loopbacks              []Loopback
	Lease                  *LeaseRecord // of a conversation's MCP servers; it then has no keys
}

// plainRecord is a Record before it is sealed: secret.Text refuses to encode.
type plainRecord struct {
	Digest                 []byte
	Box, Bot, Conversation string
	Expires                time.Time
	Keys                   []plainKey
	Refs                   map[string]string
	Limits                 Limits
	Loopbacks              []Loopback  `json:",omitempty"`
	Lease                  *plainLease `json:",omitempty"`
}

type plainKey struct {
	Provider, EnvName, Secret, Upstream string
	Login                               string
	Paths                               []string
}

func (r Record) encode() ([]byte, error) {
	plain := plainRecord{r.Digest[:], r.Box, r.Bot, r.Conversation, r.Expires, nil, r.Refs, r.Limits, r.Loopbacks, r.Lease.plain()}
	for _, k := range r.Keys {
		plain.Keys = append(plain.Keys, plainKey{k.Provider, k.EnvName, k.Secret.Reveal(), k.Upstream, k.Login, k.Paths})
	}
	return json.Marshal(plain)
}

func decodeRecord(data []byte) (Record, error) {
	var plain plainRecord
	if err := json.Unmarshal(data, &plain); err != nil {
		return Record{}, err
	}
	r := Record{
		Box: plain.Box, Bot: plain.Bot, Conversation: plain.Conversation, Expires: plain.Expires,
		Refs: plain.Refs, Limits: plain.Limits, Loopbacks: plain.Loopbacks, Lease: plain.Lease.record(),
	}
	copy(r.Digest[:], plain.Digest)
	for _, k := range plain.Keys {
		r.Keys = append(r.Keys, Key{k.Provider, k.EnvName, secret.New(k.Secret), k.Upstream, k.Login, k.Paths})
	}
	return r, nil
}
