package broker

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
)

const (
	tokenPrefix = "omb_t0_"
	tokenBytes  = 32

	// MaxTTL is the longest life of a token.
	MaxTTL = 24 * time.Hour
	// deadMemory is how long a dead token is told apart from an unknown one, so
	// that an engine which still has it is stopped by the right answer.
	deadMemory = time.Hour
)

// Options are the broker's surroundings.
type Options struct {
	BootKey   [32]byte          // the supervisor's; tokens and the store hang on it
	Store     *Store            // may be nil: then nothing outlives the worker
	Log       func(Event)       // may be nil; called once for each request, must not block
	Now       func() time.Time  // nil = time.Now
	Transport http.RoundTripper // nil = one of its own for each grant, as it should be
	OwnPort   uint16            // of the server behind the harness gate: no MCP server is there

	Login func(name string) (Login, error) // opens a sign-in; nil where there is none
}

// Broker holds the tokens of all boxes. Its methods may be called at the same
// time.
type Broker struct {
	bootKey   [32]byte
	store     *Store
	log       func(Event)
	now       func() time.Time
	transport http.RoundTripper
	login     func(name string) (Login, error)
	sealer    *sealer
	boxes     *sealer // of what boxes outlive a worker with
	mcp       *leases // under mu
	ownPort   uint16
	quiet     time.Duration // after which an MCP stream gets a comment
	lingers   time.Duration // what is open of an MCP token that was replaced
	rotating  sync.Mutex
	rotations atomic.Uint64
	held      atomic.Int64 // bytes of request bodies that are held

	mu      sync.Mutex
	closed  bool
	tokens  map[digest]*token
	servers map[*http.Server]bool
	conns   map[string]map[net.Conn]bool // by box
	known   map[string]int               // tokens in the table, dead ones too, by box
}

// New makes a broker without tokens.
func New(o Options) (*Broker, error) {
	if o.BootKey == [32]byte{} {
		return nil, reason.New(reason.Internal, "the broker was given no boot key")
	}
	sealer, err := newSealer(o.BootKey)
	if err != nil {
		return nil, err
	}
	boxes, err := newSealerFor(o.BootKey, "botbox boxes v1")
	if err != nil {
		return nil, err
	}
	mcp, err := newLeases(o.BootKey)
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = func(Event) {}
	}
	return &Broker{
		bootKey: o.BootKey, store: o.Store, log: o.Log, now: o.Now, transport: o.Transport, login: o.Login,
		sealer:  sealer,
		boxes:   boxes,
		mcp:     mcp,
		ownPort: o.OwnPort,
		quiet:   keepAliveAfter,
		lingers: lastStreams,
		tokens:  map[digest]*token{},
		servers: map[*http.Server]bool{},
		conns:   map[string]map[net.Conn]bool{},
		known:   map[string]int{},
	}, nil
}

// Turn is one boxed turn that asks for a token.
type Turn struct {
	Box, Bot, Conversation string
	Engine                 string // claude, codex, gemini, opencode, grok, none
	Keys                   []Key
	Loopbacks              []Loopback
	Unbrokered             []string          // as Take named them; copied into Issued
	Refs                   map[string]string // names of the secrets that Keys came from, by variable: Rotate reads them again
	Limits                 Limits            // of each grant
	TTL                    time.Duration
	Logins                 []string // names of sign-ins that stay outside: the engine's own
	Dial                   Dial     // to the declared hosts, of which HostKeys made Keys
	// Alone: no sign-in and no settings of the engine's own are in the box.
	Alone bool
	// Given is what the driver passed under the names that an engine's
	// configuration rides in; it is kept, under ours.
	Given map[string]string
}

// Issued is what goes into the box in the keys' place.
type Issued struct {
	Env        map[string]string // tokens, base URLs and what pins them
	Quiet      map[string]string // the same, but what the driver passed wins
	Argv       []string          // to stand after the words that name the engine
	Files      map[string]string // below HOME, where HOME is the box's own
	Grants     []string          // names of providers and loopback servers, sorted
	Addresses  map[string]string // of the loopback servers in the box, by name
	Expires    time.Time         // zero when there was nothing to grant
	Unbrokered []string

	Intercepted []string // declared hosts, sorted
}

// Issue makes a token for the turn, good for the grants of its keys and for its
// loopback servers, and the engine's launch settings. A turn without keys and
// servers gets no token. TTL 0 means MaxTTL.
func (b *Broker) Issue(turn Turn) (Issued, error) {
	issued := Issued{
		Env: map[string]string{}, Quiet: map[string]string{}, Files: map[string]string{}, Addresses: map[string]string{},
		Unbrokered: turn.Unbrokered,
	}
	e, ok := engineNamed(turn.Engine)
	switch {
	case !ok:
		return issued, reason.New(reason.BadSpec, "the broker knows no engine %q", turn.Engine)
	case turn.Box == "":
		return issued, reason.New(reason.Internal, "a token was asked for without a box")
	case turn.TTL < 0 || turn.TTL > MaxTTL:
		return issued, reason.New(reason.BadSpec, "a token lives at most %v", MaxTTL)
	}
	signedIn, err := loginKeys(turn)
	if err != nil {
		return issued, err
	}
	turn.Keys = append(slices.Clone(turn.Keys), signedIn...)
	switch {
	case len(turn.Keys)+len(turn.Loopbacks) == 0:
		return issued, e.settings("", turn, &issued)
	case turn.TTL == 0:
		turn.TTL = MaxTTL
	}
	text := newTokenText()
	if err := e.settings(text, turn, &issued); err != nil {
		return Issued{}, err
	}
	record := Record{
		b.digest(text), turn.Box, turn.Bot, turn.Conversation, b.now().Add(turn.TTL), turn.Keys, turn.keyRefs(), turn.Limits, turn.Loopbacks, nil,
	}
	// First the store, so that whatever ends the token also ends the record.
	if err := b.keep(record); err != nil {
		return issued, err
	}
	if err := b.add(record, turn.Dial); err != nil {
		b.unkeep(record.Digest)
		return issued, err
	}
	for _, k := range turn.Keys {
		if host := k.declaredHost(); host != "" {
			issued.Intercepted = append(issued.Intercepted, host)
			continue
		}
		issued.Grants = append(issued.Grants, k.Provider)
	}
	for _, l := range turn.Loopbacks {
		issued.Grants = append(issued.Grants, l.Name)
		issued.Addresses[l.Name] = grantURL(text, l.Name)
		issued.Env[LoopbackEnv(l.Name)] = issued.Addresses[l.Name]
	}
	slices.Sort(issued.Intercepted)
	slices.Sort(issued.Grants)
	issued.Grants = slices.Compact(issued.Grants)
	issued.Expires = record.Expires
	b.count("broker.issued")
	b.log(Event{Time: b.now(), Kind: Issuing, Box: turn.Box, Bot: turn.Bot, Conversation: turn.Conversation})
	return issued, nil
}

// Adopt takes over tokens that an earlier worker issued and the store brought
// back, and tells how many of them still live. The caller then revokes the
// boxes that are no more.
func (b *Broker) Adopt(records []Record) int {
	adopted := 0
	for _, r := range records {
		add := func(r Record) error { return b.add(r, nil) }
		if r.Lease != nil {
			add = b.adoptLease
		}
		if err := add(r); err != nil {
			b.unkeep(r.Digest)
			continue
		}
		adopted++
	}
	return adopted
}

func (b *Broker) add(r Record, dial Dial) error {
	left := r.Expires.Sub(b.now())
	if left <= 0 || left > MaxTTL {
		return reason.New(reason.BadSpec, "the token's time is over, or was never right")
	}
	grants, err := newGrants(r, around{b.transport, dial, b.login})
	if err != nil {
		return err
	}
	t := &token{digest: r.Digest, box: r.Box, bot: r.Bot, conversation: r.Conversation, expires: r.Expires, record: r, grants: grants}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		t.cancel()
		return reason.New(reason.System, "the broker is closed")
	}
	// It also ends the streams that are open then.
	t.timer = time.AfterFunc(left, func() { b.kill(t, true) })
	b.tokens[t.digest] = t
	b.known[t.box]++
	return nil
}

// Revoke ends all tokens of a box at once and cuts its connections, streams
// among them. It tells how many tokens it ended; a second call ends none.
func (b *Broker) Revoke(box string) int {
	b.mu.Lock()
	var living []*token
	for _, t := range b.tokens {
		if t.box == box && t.grants != nil {
			living = append(living, t)
		}
	}
	conns := slices.Collect(maps.Keys(b.conns[box]))
	b.mu.Unlock()
	b.unbind(box)
	n := 0
	for _, t := range living {
		if b.kill(t, true) {
			n++
		}
	}
	for _, c := range conns {
		c.Close()
	}
	return n
}

// kill ends one token. Its requests are cut by their context. erase is false
// only when the worker itself ends: then the store keeps the record for the
// next worker.
func (b *Broker) kill(t *token, erase bool) bool {
	b.mu.Lock()
	grants := t.grants
	t.grants, t.record.Keys = nil, nil
	b.mu.Unlock()
	if grants == nil {
		return false
	}
	t.cancel()
	t.timer.Stop()
	for _, g := range grants {
		g.forget()
	}
	if erase {
		b.unkeep(t.digest)
		b.count("broker.revoked")
		b.log(Event{Time: b.now(), Kind: Revoking, Box: t.box, Bot: t.bot, Conversation: t.conversation})
	}
	time.AfterFunc(deadMemory, func() {
		b.mu.Lock()
		delete(b.tokens, t.digest)
		if b.known[t.box]--; b.known[t.box] == 0 {
			delete(b.known, t.box)
		}
		b.mu.Unlock()
	})
	return true
}

// authorise finds the grant that a token names on a box's listener, or the
// code of the refusal. The token is nil when it is unknown.
func (b *Broker) authorise(box, text, name string) (*token, *grant, string) {
	if !tokenForm(text) {
		return nil, nil, "unknown_token"
	}
	d := b.digest(text)
	b.mu.Lock()
	t, ok := b.tokens[d]
	var grants map[string]*grant
	if ok {
		grants = t.grants
	}
	lost := b.known[box] == 0
	b.mu.Unlock()
	// The map compared a digest that nobody without the boot key can aim at;
	// the second comparison keeps this true whatever a map does.
	if !ok || subtle.ConstantTimeCompare(t.digest[:], d[:]) != 1 {
		if lost { // the table was lost, or never had a row for this box
			return nil, nil, "grants_lost"
		}
		return nil, nil, "unknown_token"
	}
	if t.box != box {
		return t, nil, "wrong_box"
	}
	if grants == nil || !b.now().Before(t.expires) {
		return t, nil, "token_revoked"
	}
	g, ok := grants[name]
	if !ok {
		return t, nil, "missing_grant"
	}
	return t, g, ""
}

// Close ends all tokens, connections and listeners. The store's records stay:
// the next worker may adopt them.
func (b *Broker) Close() {
	b.mu.Lock()
	b.closed = true
	living := slices.Collect(maps.Values(b.tokens))
	servers := slices.Collect(maps.Keys(b.servers))
	b.mu.Unlock()
	for _, s := range servers {
		s.Close()
	}
	for _, t := range living {
		b.kill(t, false)
	}
	b.closeLeases()
}

func (b *Broker) digest(text string) (d digest) {
	mac := hmac.New(sha256.New, b.bootKey[:])
	mac.Write([]byte(text))
	mac.Sum(d[:0])
	return d
}

func newTokenText() string {
	var raw [tokenBytes]byte
	rand.Read(raw[:]) // never fails since Go 1.24; it ends the program instead
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(raw[:])
}

// tokenForm keeps everything that cannot be a token away from the look-up.
func tokenForm(text string) bool {
	body, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok || len(body) != base64.RawURLEncoding.EncodedLen(tokenBytes) {
		return false
	}
	_, err := base64.RawURLEncoding.Strict().DecodeString(body)
	return err == nil
}

func (b *Broker) keep(r Record) error {
	if b.store == nil {
		return nil
	}
	plain, err := r.encode()
	if err != nil {
		return err
	}
	b.store.put(r.Digest, b.sealer.seal(r.Digest, plain))
	return nil
}

func (b *Broker) unkeep(d digest) {
	if b.store != nil {
		b.store.put(d, nil)
	}
}

func (b *Broker) count(name string) {
	if b.store != nil {
		b.store.Add(name, 1)
	}
}
