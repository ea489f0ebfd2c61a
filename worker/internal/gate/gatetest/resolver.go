package gatetest

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
)

// Resolver answers from a table of names without their trailing dot. The
// values are addresses, comma separated; a query beyond the last of several
// answers that "|" separates gets the last one.
type Resolver struct {
	Names map[string]string

	mu      sync.Mutex
	queries map[string]int
}

// LookupNetIP answers, or fails as a name server that has no such name.
func (r *Resolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	name, rooted := strings.CutSuffix(host, ".")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queries == nil {
		r.queries = make(map[string]int)
	}
	n := r.queries[name]
	r.queries[name]++
	text, ok := r.Names[name]
	if !ok || !rooted {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	answers := strings.Split(text, "|")
	var out []netip.Addr
	for a := range strings.SplitSeq(answers[min(n, len(answers)-1)], ",") {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

// Queries gives how often a name was asked for.
func (r *Resolver) Queries(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queries[name]
}

// Total gives how many queries there were.
func (r *Resolver) Total() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.queries {
		n += q
	}
	return n
}
