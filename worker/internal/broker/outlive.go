package broker

import "github.com/openmausbot/botbox/shared/reason"

// Settle returns when the grants of this moment are in the store, so that they
// outlive this process. Without a store nothing does.
func (b *Broker) Settle() {
	if b.store != nil {
		b.store.settle()
	}
}

// Seal seals what the next worker of this boot has to know of a box and nobody
// else may: under a key of the boot key's, and in this box's name, so that it
// is nothing in another's.
func (b *Broker) Seal(box string, plain []byte) []byte {
	return b.boxes.aead.Seal(nil, nil, plain, []byte(box))
}

// Unseal opens what a worker of the same boot sealed for this box.
func (b *Broker) Unseal(box string, sealed []byte) ([]byte, error) {
	plain, err := b.boxes.aead.Open(nil, nil, sealed, []byte(box))
	if err != nil {
		return nil, reason.New(reason.Internal, "it was sealed for another box, or by the worker of another boot")
	}
	return plain, nil
}

// Reach gives the adopted grants of a box's declared hosts the way to them,
// which is the box's own gate. It is called before the box is served.
func (b *Broker) Reach(box string, dial Dial) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.tokens {
		if t.box != box {
			continue
		}
		for _, g := range t.grants {
			if g.host != "" {
				g.dial = dial
			}
		}
	}
}

// Used is what was used of one grant's limits.
type Used struct {
	Bytes  int64 `json:"bytes,omitempty"`
	Tokens int64 `json:"tokens,omitempty"`
}

// Used tells what a box has used of those of its grants that have a limit of
// bytes or tokens, by grant; what was not used does not stand in it.
func (b *Broker) Used(box string) map[string]Used {
	used := map[string]Used{}
	for name, m := range b.metered(box) {
		m.mu.Lock()
		u := Used{m.bytes.Load(), m.tokens}
		m.mu.Unlock()
		if u != (Used{}) {
			used[name] = u
		}
	}
	return used
}

// Spend counts what a box had used before an earlier worker died.
func (b *Broker) Spend(box string, used map[string]Used) {
	for name, m := range b.metered(box) {
		m.bytes.Add(used[name].Bytes)
		m.spend(used[name].Tokens)
	}
}

func (b *Broker) metered(box string) map[string]*meter {
	b.mu.Lock()
	defer b.mu.Unlock()
	meters := map[string]*meter{}
	for _, t := range b.tokens {
		if t.box != box {
			continue
		}
		for name, g := range t.grants {
			if l := g.meter.limits; l.Bytes > 0 || l.Tokens > 0 {
				meters[name] = g.meter
			}
		}
	}
	return meters
}
