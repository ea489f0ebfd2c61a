package broker

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
)

const (
	// lastStreams is how long streams of a replaced token may go on.
	lastStreams = time.Minute
	// renewBefore: a turn that begins shortly before its token ends gets another
	// one, so that it does not lose its servers in the middle.
	renewBefore = time.Hour
)

// talk is whose addresses stay the same.
type talk struct{ bot, conversation string }

// lease is a conversation's token for its URL servers. It is kept for the
// conversation's later turns while the servers are the same, so that an engine
// process or an MCP session can be kept, too; but it works only while a box of
// that conversation lives, on that box's own listener. Without one it holds
// neither headers nor connections: the next turn brings them again.
type lease struct {
	talk    talk
	seed    [32]byte // the token's text hangs on it and on the boot key
	digest  digest
	hash    [32]byte // of the servers
	expires time.Time
	failed  bool              // a server did not start: the next turn gets another token
	faults  map[string]string // the last refusal of each server, for the chat's words

	// All nil or false when the lease is over.
	alive   bool
	retired bool                  // no new requests
	boxes   map[string]*mcpUse    // living ones
	servers map[string]*mcpServer // nil without a box
	ctx     context.Context
	cancel  context.CancelFunc
	timer   *time.Timer
	streams mcpStreams
}

// mcpUse is one box's use of a lease. Limits are a turn's, so they count here.
type mcpUse struct {
	limits Limits
	meters map[string]*meter // by server
	ctx    context.Context
	cancel context.CancelFunc
}

// mcpStreams are the open streams of the transport of 2024-11-05, on which the
// answers to posted messages come.
type mcpStreams struct {
	mu   sync.Mutex
	open map[string]*eventStream
}

func (s *mcpStreams) add(id string, stream *eventStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]*eventStream{}
	}
	s.open[id] = stream
}

func (s *mcpStreams) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}

func (s *mcpStreams) find(id string) *eventStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[id]
}

// leases are all of them, under the broker's lock.
type leases struct {
	byTalk   map[talk]*lease
	byDigest map[digest]*lease
	textKey  []byte
	endpoint *sealer
}

func newLeases(bootKey [32]byte) (*leases, error) {
	text, err := hkdf.Key(sha256.New, bootKey[:], nil, "botbox mcp addresses v1", 32)
	if err != nil {
		return nil, reason.New(reason.Internal, "derive the addresses' key: %w", err)
	}
	endpoint, err := newSealerFor(bootKey, "botbox mcp endpoints v1")
	return &leases{map[talk]*lease{}, map[digest]*lease{}, text, endpoint}, err
}

// text is the token of a seed. Nobody keeps it: a worker that takes the lease
// over makes it again.
func (l *leases) text(seed [32]byte) string {
	mac := hmac.New(sha256.New, l.textKey)
	mac.Write(seed[:])
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// MCPTurn asks for the addresses of a turn's URL servers.
type MCPTurn struct {
	Box               string // empty: ahead of the turn, which then gets the same addresses
	Bot, Conversation string // without a conversation the addresses end with the box
	Servers           []MCPServer
	Limits            Limits // of each server
}

// MCPIssued are the addresses that a turn's engine uses, without any header.
type MCPIssued struct {
	Addresses map[string]string // by server
	Env       map[string]string // the same, as the box finds them
	Expires   time.Time
	New       bool // they are not those of the turn before
}

// IssueMCP gives the addresses of a conversation's servers: those of the turn
// before when the servers are the same and all of them started.
func (b *Broker) IssueMCP(turn MCPTurn) (MCPIssued, error) {
	servers, err := newMCPServers(turn.Servers, b.MCPTransport)
	if err != nil {
		return MCPIssued{}, err
	}
	if turn.Box == "" && turn.Conversation == "" {
		return MCPIssued{}, reason.New(reason.Internal, "addresses were asked for without a box and without a conversation")
	}
	who := talk{turn.Bot, turn.Conversation}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return MCPIssued{}, reason.New(reason.System, "the broker is closed")
	}
	l := b.mcp.byTalk[who]
	hash := hashServers(turn.Servers)
	if l != nil && (len(servers) == 0 || l.hash != hash || l.failed || l.expires.Sub(b.now()) < renewBefore) {
		b.retire(l)
		l = nil
	}
	if len(servers) == 0 {
		return MCPIssued{}, nil
	}
	issued := MCPIssued{Addresses: map[string]string{}, Env: map[string]string{}, New: l == nil}
	if l == nil {
		l = b.mint(who, hash)
	}
	if turn.Box != "" {
		b.bind(l, turn.Box, turn.Limits, servers)
	}
	if err := b.keepLease(l); err != nil {
		b.unbindFrom(l, turn.Box)
		return MCPIssued{}, err
	}
	text := b.mcp.text(l.seed)
	for name := range servers {
		issued.Addresses[name] = grantURL(text, mcpPrefix+name)
		issued.Env[MCPEnv(name)] = issued.Addresses[name]
	}
	issued.Expires = l.expires
	return issued, nil
}

func newMCPServers(list []MCPServer, transport func() http.RoundTripper) (map[string]*mcpServer, error) {
	if len(list) > mcpServersMax {
		return nil, reason.New(reason.BadSpec, "a turn has at most %d MCP servers", mcpServersMax)
	}
	servers, env := map[string]*mcpServer{}, map[string]string{}
	for _, s := range list {
		m, err := newMCPServer(s, transport()) // a pool of connections of its own
		if err != nil {
			return nil, err
		}
		if other, taken := env[MCPEnv(s.Name)]; taken {
			return nil, reason.New(reason.BadSpec, "the MCP servers %s and %s would share the variable %s", other, s.Name, MCPEnv(s.Name))
		}
		servers[s.Name], env[MCPEnv(s.Name)] = m, s.Name
	}
	return servers, nil
}

// hashServers tells lists of servers apart: by name, address and the headers'
// names, whatever their values are now.
func hashServers(list []MCPServer) (sum [32]byte) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b MCPServer) int { return strings.Compare(a.Name, b.Name) })
	h := sha256.New()
	word := func(s string) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	for _, s := range list {
		word(s.Name)
		word(s.URL)
		var names []string
		for name := range s.Headers {
			names = append(names, http.CanonicalHeaderKey(name))
		}
		slices.Sort(names)
		word(strings.Join(names, "\n"))
	}
	h.Sum(sum[:0])
	return sum
}

// mint makes a lease. The lock is held, as in all that follows.
func (b *Broker) mint(who talk, hash [32]byte) *lease {
	l := &lease{talk: who, hash: hash, expires: b.now().Add(MaxTTL)}
	rand.Read(l.seed[:])
	b.enter(l)
	b.count("broker.issued")
	b.log(Event{Time: b.now(), Kind: Issuing, Bot: who.bot, Conversation: who.conversation})
	return l
}

// enter puts a new or an adopted lease into the tables.
func (b *Broker) enter(l *lease) {
	l.alive, l.faults, l.boxes = true, map[string]string{}, map[string]*mcpUse{}
	l.digest = b.digest(b.mcp.text(l.seed))
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.timer = time.AfterFunc(l.expires.Sub(b.now()), func() { b.endLease(l) })
	b.mcp.byDigest[l.digest] = l
	if l.talk.conversation != "" {
		b.mcp.byTalk[l.talk] = l
	}
}

// bind lets a box use the lease. The servers are the same ones, perhaps with
// other values in their headers.
func (b *Broker) bind(l *lease, box string, limits Limits, servers map[string]*mcpServer) {
	if l.servers == nil {
		l.servers = servers
	}
	for name, m := range servers {
		if have := l.servers[name]; have != m {
			have.refs = m.refs
			have.take(m.headers.Load().values)
		}
	}
	use := &mcpUse{limits: limits, meters: map[string]*meter{}}
	for name := range servers {
		use.meters[name] = newMeter(limits)
	}
	use.ctx, use.cancel = context.WithCancel(l.ctx)
	if l.boxes[box] == nil {
		b.known[box]++
	} else {
		l.boxes[box].cancel()
	}
	l.boxes[box] = use
}

// unbind takes a box that has ended out of all leases. A lease that only it
// used keeps its place for the next turn, and nothing else.
func (b *Broker) unbind(box string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.mcp.byDigest {
		if l.alive && l.boxes[box] != nil {
			b.unbindFrom(l, box)
		}
	}
}

func (b *Broker) unbindFrom(l *lease, box string) {
	if use := l.boxes[box]; use != nil {
		use.cancel()
		delete(l.boxes, box)
		b.unknow(box)
	}
	switch {
	case len(l.boxes) > 0:
		b.keepLease(l)
	case l.retired || l.talk.conversation == "":
		b.end(l)
	default:
		l.release()
		b.keepLease(l) // less of what could be written before
	}
}

// keepLease writes the lease down, unless it is on its way out.
func (b *Broker) keepLease(l *lease) error {
	if l.retired {
		return nil
	}
	return b.keep(l.record())
}

func (b *Broker) unknow(box string) {
	if b.known[box]--; b.known[box] <= 0 {
		delete(b.known, box)
	}
}

// release forgets headers and connections.
func (l *lease) release() {
	for _, m := range l.servers {
		m.forget()
	}
	l.servers = nil
}

// retire replaces a lease: nothing new begins with it, and what is open may
// finish.
func (b *Broker) retire(l *lease) {
	l.retired = true
	if b.mcp.byTalk[l.talk] == l {
		delete(b.mcp.byTalk, l.talk)
	}
	if len(l.boxes) == 0 {
		b.end(l)
		return
	}
	b.unkeep(l.digest)
	time.AfterFunc(b.lingers, func() { b.endLease(l) })
}

func (b *Broker) endLease(l *lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(l)
}

// end ends a lease and cuts what is open. It is remembered for a while, so that
// an engine that still has the address hears the right answer.
func (b *Broker) end(l *lease) bool {
	if !l.alive {
		return false
	}
	b.stop(l)
	b.unkeep(l.digest)
	b.count("broker.revoked")
	b.log(Event{Time: b.now(), Kind: Revoking, Bot: l.talk.bot, Conversation: l.talk.conversation})
	time.AfterFunc(deadMemory, func() {
		b.mu.Lock()
		delete(b.mcp.byDigest, l.digest)
		b.mu.Unlock()
	})
	return true
}

// stop is the part of end that a worker that only stops has, too: the store
// keeps the record for the next one.
func (b *Broker) stop(l *lease) {
	l.alive = false
	l.timer.Stop()
	l.cancel()
	for box := range l.boxes {
		b.unknow(box)
	}
	l.boxes = nil
	l.release()
	if b.mcp.byTalk[l.talk] == l {
		delete(b.mcp.byTalk, l.talk)
	}
}

func (b *Broker) closeLeases() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.mcp.byDigest {
		if l.alive {
			b.stop(l)
		}
	}
}

// leaseOf finds the lease of a token, a dead one too.
func (b *Broker) leaseOf(text string) *lease {
	if !tokenForm(text) {
		return nil
	}
	d := b.digest(text)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mcp.byDigest[d]
}

// use finds what a box may do with a lease, or the code of its refusal. A dead
// token is told before a foreign box: a later turn's engine may have it in its
// HOME, and that is no theft.
func (b *Broker) use(l *lease, box, grant string) (*mcpServer, *mcpUse, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !l.alive || l.retired || !b.now().Before(l.expires) {
		return nil, nil, "token_revoked"
	}
	use := l.boxes[box]
	if use == nil {
		return nil, nil, "wrong_box"
	}
	name, ok := strings.CutPrefix(grant, mcpPrefix)
	if m := l.servers[name]; ok && m != nil {
		return m, use, ""
	}
	return nil, nil, "missing_grant"
}

// stolenLease ends a lease that a foreign box showed.
func (b *Broker) stolenLease(box string, l *lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	owner := ""
	for name := range l.boxes {
		owner = max(owner, name)
	}
	if b.end(l) {
		b.count("broker.stolen")
		b.log(Event{Time: b.now(), Kind: Stealing, Box: box, Owner: owner, Bot: l.talk.bot, Conversation: l.talk.conversation})
	}
}
