package gate

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/openmausbot/botbox/shared/addrpolicy"
	"github.com/openmausbot/botbox/shared/hostport"
)

var ownAddress = addrpolicy.Verdict{Class: "own", Reason: "address of the machine that the box runs on"}

// judge gives the reason why an address may not be dialled, or nil. The
// policy knows prefixes; the routing table knows this machine: every interface
// address, also one that was added a moment ago, and AnyIP local routes.
func (d *Dialer) judge(ap netip.AddrPort) *Refusal {
	if r := d.byPolicy(ap); r != nil || d.excepted(ap) {
		return r
	}
	kind, err := routeTo(ap.Addr().Unmap())
	switch {
	case err != nil:
		return unreachable()
	case kind != unicast:
		return deniedAddress(ownAddress)
	}
	return nil
}

// byPolicy is the part of the judgement that no system call is needed for.
func (d *Dialer) byPolicy(ap netip.AddrPort) *Refusal {
	if r := d.deniedAnswer(ap); r != nil || d.excepted(ap) {
		return r
	}
	if v := addrpolicy.Classify(ap.Addr().Unmap()); !v.Allowed {
		return deniedAddress(v)
	}
	return nil
}

func (d *Dialer) excepted(ap netip.AddrPort) bool {
	return slices.Contains(d.Except, netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()))
}

// targets gives the addresses of h that may be dialled, in the order of
// dialling.
func (d *Dialer) targets(ctx context.Context, h hostport.Host) ([]netip.AddrPort, *Refusal) {
	if h.Addr.IsValid() {
		// connect asks the routing table in a moment; a name's answers are
		// asked for here, because one of ours among them refuses them all.
		ap := netip.AddrPortFrom(h.Addr, h.Port)
		return []netip.AddrPort{ap}, d.byPolicy(ap)
	}
	answers, r := d.lookup(ctx, h.Name)
	if r != nil {
		return nil, r
	}
	return d.pick(answers, h.Port)
}

// lookup asks once for A and AAAA together.
func (d *Dialer) lookup(ctx context.Context, name string) ([]netip.Addr, *Refusal) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	answers, err := d.resolver().LookupNetIP(ctx, "ip", name+".")
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsTimeout, ctx.Err() != nil:
		return nil, &Refusal{504, "dns-timeout", "the name server did not answer in time", hintLater, "dns_timeout"}
	case err != nil, len(answers) == 0:
		return nil, &Refusal{502, "dns", "the name cannot be resolved", "Check the spelling of the host name.", "dns_error"}
	}
	return answers, nil
}

func (d *Dialer) resolver() Resolver {
	if d.Resolver != nil {
		return d.Resolver
	}
	// Go's own: getaddrinfo reads numbers as addresses, and nsswitch modules
	// are code that we have not read.
	return &net.Resolver{PreferGo: true}
}

// pick keeps the answers that may be dialled. One private answer among public
// ones is the mark of DNS rebinding and refuses the name; an answer that is
// only a translation of a public one (DNS64) is passed over.
func (d *Dialer) pick(answers []netip.Addr, port uint16) ([]netip.AddrPort, *Refusal) {
	var out []netip.AddrPort
	routeless := false
	for _, a := range answers {
		ap := netip.AddrPortFrom(a.Unmap(), port)
		r := d.judge(ap)
		switch {
		case r == nil:
			out = append(out, ap)
		case r.Status != 403:
			routeless = true // no IPv6 here, most often: the other family may do
		case r.Class == classDenied:
			return nil, r // the box's own list: it tells the box nothing new
		case !addrpolicy.Class(r.Class).Skippable():
			return nil, nonPublic()
		}
	}
	switch {
	case len(out) > 0:
		return interleave(out), nil
	case routeless:
		return nil, unreachable()
	}
	return nil, nonPublic()
}

// interleave alternates the families, the first answer's first (RFC 8305 §4),
// and keeps maxAttempts of them.
func interleave(in []netip.AddrPort) []netip.AddrPort {
	var first, second []netip.AddrPort
	for _, ap := range in {
		if ap.Addr().Is4() == in[0].Addr().Is4() {
			first = append(first, ap)
		} else {
			second = append(second, ap)
		}
	}
	out := make([]netip.AddrPort, 0, len(in))
	for i := range max(len(first), len(second)) {
		if i < len(first) {
			out = append(out, first[i])
		}
		if i < len(second) {
			out = append(out, second[i])
		}
	}
	return out[:min(len(out), maxAttempts)]
}
