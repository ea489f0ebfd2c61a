package broker

import (
	"maps"
	"slices"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// Rotated tells what a rotation did.
type Rotated struct {
	Refs   []string `json:"refs"`   // secrets that were read again
	Grants int      `json:"grants"` // that carry another key now
	Boxes  int      `json:"boxes"`  // whose grants those are
}

// Rotate reads the secrets of living grants again and lets every request that
// begins from now on carry what they hold; what is under way ends with the key
// that it began with. Keys that came as plain values have no place to be read
// from, and stay.
//
// only narrows it to one secret's name; empty means all. When one of them
// cannot be read, or holds no key, nothing is changed.
func (b *Broker) Rotate(read func(ref string) (secret.Text, error), only string) (Rotated, error) {
	b.rotating.Lock() // two at once could leave the older key in place
	defer b.rotating.Unlock()
	b.rotations.Add(1)
	fresh := map[string]secret.Text{}
	for _, ref := range b.refs() {
		if only != "" && ref != only {
			continue
		}
		text, err := read(ref)
		if err == nil {
			err = b.checkSecret(ref, text)
		}
		if err != nil {
			return Rotated{}, err
		}
		fresh[ref] = text
	}
	if only != "" && len(fresh) == 0 {
		return Rotated{}, reason.New(reason.NoSuchSecret, "no living grant has its key from the secret %q", only)
	}
	done := Rotated{Refs: slices.Sorted(maps.Keys(fresh))}
	if done.Refs == nil {
		done.Refs = []string{}
	}
	boxes := map[string]bool{}
	for _, t := range b.living() {
		n, err := b.repoint(t, fresh)
		if err != nil {
			return done, err
		}
		if n > 0 {
			done.Grants += n
			boxes[t.box] = true
		}
	}
	for _, l := range b.leased() {
		n, used, err := b.repointLease(l, fresh)
		if err != nil {
			return done, err
		}
		done.Grants += n
		for _, box := range used {
			boxes[box] = true
		}
	}
	done.Boxes = len(boxes)
	return done, nil
}

// keyRefs are the turn's Refs that belong to keys: a spec names secrets for
// other variables, too, and those are no business of the broker's.
func (t Turn) keyRefs() map[string]string {
	refs := map[string]string{}
	for _, k := range t.Keys {
		if ref, ok := t.Refs[k.EnvName]; ok {
			refs[k.EnvName] = ref
		}
	}
	return refs
}

// Rotations counts the rotations that have begun. Who reads a secret and asks
// for a token with it looks here before and after: in between it may have been
// exchanged, and no living grant had it yet.
func (b *Broker) Rotations() uint64 { return b.rotations.Load() }

// refs are the names of the secrets of living tokens, sorted.
func (b *Broker) refs() []string {
	names := map[string]bool{}
	for _, t := range b.living() {
		for _, ref := range t.record.Refs {
			names[ref] = true
		}
	}
	b.mcpRefs(names)
	return slices.Sorted(maps.Keys(names))
}

func (b *Broker) living() []*token {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*token
	for _, t := range b.tokens {
		if t.grants != nil {
			all = append(all, t)
		}
	}
	return all
}

// repoint exchanges the keys of one token's grants, and its stored record.
func (b *Broker) repoint(t *token, fresh map[string]secret.Text) (changed int, err error) {
	b.mu.Lock()
	grants, record := t.grants, t.record
	record.Keys = slices.Clone(record.Keys)
	for i, k := range record.Keys {
		text, ok := fresh[record.Refs[k.EnvName]]
		if !ok || grants == nil { // not asked for, or revoked meanwhile
			continue
		}
		record.Keys[i].Secret = text
		if g := grants[k.Provider]; g.keyVar.env == k.EnvName && g.exchangeKey(text) {
			changed++
		}
	}
	if grants == nil {
		b.mu.Unlock()
		return 0, nil
	}
	t.record = record
	// Under the lock, so that a revocation cannot come between and be undone.
	err = b.keep(record)
	b.mu.Unlock()
	if changed > 0 {
		b.count("broker.rotated")
		b.log(Event{Time: b.now(), Kind: Rotating, Box: t.box, Bot: t.bot, Conversation: t.conversation})
	}
	return changed, err
}
