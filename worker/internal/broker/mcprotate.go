package broker

import (
	"maps"
	"slices"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// leased are the leases that a box uses.
func (b *Broker) leased() []*lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*lease
	for _, l := range b.mcp.byDigest {
		if l.alive && l.servers != nil {
			all = append(all, l)
		}
	}
	return all
}

// Living counts the grants that boxes can use now.
func (b *Broker) Living() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, t := range b.tokens {
		n += len(t.grants)
	}
	for _, l := range b.mcp.byDigest {
		n += len(l.servers)
	}
	return n
}

// mcpRefs adds the names of the secrets in living leases' headers.
func (b *Broker) mcpRefs(names map[string]bool) {
	for _, l := range b.leased() {
		for _, m := range b.serversOf(l) {
			for _, ref := range m.refs {
				names[ref] = true
			}
		}
	}
}

func (b *Broker) serversOf(l *lease) []*mcpServer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(l.servers))
}

// repointLease exchanges the headers' values that came from secrets.
func (b *Broker) repointLease(l *lease, fresh map[string]secret.Text) (changed int, boxes []string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range l.servers {
		if m.exchange(fresh) {
			changed++
		}
	}
	if changed == 0 || !l.alive {
		return 0, nil, nil
	}
	err = b.keepLease(l)
	b.count("broker.rotated")
	b.log(Event{Time: b.now(), Kind: Rotating, Bot: l.talk.bot, Conversation: l.talk.conversation})
	return changed, slices.Collect(maps.Keys(l.boxes)), err
}

// checkSecret wants of a rotated secret what its places want of it: a header's
// value may have a blank in it, a key may not.
func (b *Broker) checkSecret(ref string, text secret.Text) error {
	for _, t := range b.living() {
		for _, used := range t.record.Refs {
			if used == ref {
				return checkKey("the secret "+ref, text)
			}
		}
	}
	if !headerValue(text) {
		return reason.New(reason.BadSpec, "the secret %s is empty, or holds a byte that no header has", ref)
	}
	return nil
}
