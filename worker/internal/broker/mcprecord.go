package broker

import (
	"maps"
	"slices"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// LeaseRecord is what the store keeps of a lease.
type LeaseRecord struct {
	Seed, Hash [32]byte
	Failed     bool
	Boxes      map[string]Limits // living ones, and their limits
	Servers    []MCPServer       // with the headers' values, as long as a box lives
}

func (l *lease) record() Record {
	r := LeaseRecord{Seed: l.seed, Hash: l.hash, Failed: l.failed, Boxes: map[string]Limits{}}
	for box, use := range l.boxes {
		r.Boxes[box] = use.limits
	}
	for _, m := range l.servers {
		r.Servers = append(r.Servers, m.plain())
	}
	return Record{Digest: l.digest, Bot: l.talk.bot, Conversation: l.talk.conversation, Expires: l.expires, Lease: &r}
}

// BoxNames are the boxes that use what the record stands for.
func (r Record) BoxNames() []string {
	if r.Lease == nil {
		return []string{r.Box}
	}
	return slices.Sorted(maps.Keys(r.Lease.Boxes))
}

// adoptLease takes over what an earlier worker leased.
func (b *Broker) adoptLease(r Record) error {
	left := r.Expires.Sub(b.now())
	if left <= 0 || left > MaxTTL {
		return reason.New(reason.BadSpec, "the token's time is over, or was never right")
	}
	servers, err := newMCPServers(r.Lease.Servers, b.MCPTransport)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return reason.New(reason.System, "the broker is closed")
	}
	l := &lease{talk: talk{r.Bot, r.Conversation}, seed: r.Lease.Seed, hash: r.Lease.Hash, expires: r.Expires, failed: r.Lease.Failed}
	if b.digest(b.mcp.text(l.seed)) != r.Digest {
		return reason.New(reason.BadSpec, "the record is of another token")
	}
	b.enter(l)
	for box, limits := range r.Lease.Boxes {
		b.bind(l, box, limits, servers)
	}
	return nil
}

// plainLease is a LeaseRecord before it is sealed.
type plainLease struct {
	Seed, Hash []byte
	Failed     bool
	Boxes      map[string]Limits
	Servers    []plainServer
}

type plainServer struct {
	Name, URL string
	Headers   map[string]string
	Refs      map[string]string
}

func (r *LeaseRecord) plain() *plainLease {
	if r == nil {
		return nil
	}
	p := &plainLease{r.Seed[:], r.Hash[:], r.Failed, r.Boxes, nil}
	for _, s := range r.Servers {
		headers := map[string]string{}
		for name, value := range s.Headers {
			headers[name] = value.Reveal()
		}
		p.Servers = append(p.Servers, plainServer{s.Name, s.URL, headers, s.Refs})
	}
	return p
}

func (p *plainLease) record() *LeaseRecord {
	if p == nil {
		return nil
	}
	r := &LeaseRecord{Failed: p.Failed, Boxes: p.Boxes}
	copy(r.Seed[:], p.Seed)
	copy(r.Hash[:], p.Hash)
	for _, s := range p.Servers {
		headers := map[string]secret.Text{}
		for name, value := range s.Headers {
			headers[name] = secret.New(value)
		}
		r.Servers = append(r.Servers, MCPServer{s.Name, s.URL, headers, s.Refs})
	}
	return r
}
