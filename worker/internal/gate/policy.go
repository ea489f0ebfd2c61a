package gate

import (
	"net/netip"
	"slices"

	"github.com/openmausbot/botbox/shared/addrpolicy"
	"github.com/openmausbot/botbox/shared/hostport"
)

// The classes of refusals that are about lists and budgets. An address has the
// class that addrpolicy gives it.
const (
	classPort       = "port"
	classDenied     = "denied"
	classNotAllowed = "not-allowed"
	className       = "name"
	classBudget     = "budget"
)

// rule is one reason to refuse a host before any packet is sent.
type rule struct {
	// listed: somebody wrote a list. A learning dialer passes over these, and
	// over no other rule.
	listed  bool
	refuses func(*Dialer, hostport.Host) *Refusal
}

// rules are in the order of the answers: the first that refuses is told.
var rules = []rule{
	{false, (*Dialer).refusedPort},
	{true, (*Dialer).machinePorts},
	{true, (*Dialer).boxPorts},
	{true, (*Dialer).boxDeny},
	{true, (*Dialer).machineHosts},
	{true, (*Dialer).boxHosts},
	{false, (*Dialer).refusedName},
}

// permitted is what can be said of h without any packet.
func (d *Dialer) permitted(h hostport.Host) *Refusal {
	for _, rule := range rules {
		if rule.listed && d.Learn != nil {
			continue
		}
		if r := rule.refuses(d, h); r != nil {
			return r
		}
	}
	return nil
}

// DefaultRefusePorts are closed where nobody says otherwise: mail abuse.
func DefaultRefusePorts() []uint16 { return []uint16{25} }

func (d *Dialer) refusedPort(h hostport.Host) *Refusal {
	refuse := d.RefusePorts
	if refuse == nil {
		refuse = DefaultRefusePorts()
	}
	if h.Port != 0 && !slices.Contains(refuse, h.Port) {
		return nil
	}
	return Denied(classPort, "this port is closed to boxes", "Use another port; this one is closed to every box that no OMB_EGRESS_PORTS opens it for.")
}

func (d *Dialer) machinePorts(h hostport.Host) *Refusal {
	if d.AllowPorts == nil || slices.Contains(d.AllowPorts, h.Port) {
		return nil
	}
	return Denied(classPort, "the port is not on this machine's list of ports", "Use another port, or have the operator add it to OMB_EGRESS_PORTS.")
}

func (d *Dialer) boxPorts(h hostport.Host) *Refusal {
	if d.BoxPorts == nil || slices.Contains(d.BoxPorts, h.Port) {
		return nil
	}
	return Denied(classPort, "the port is not on this box's list of ports", "Use another port, or start the box with it in net.egress.ports.")
}

func (d *Dialer) boxDeny(h hostport.Host) *Refusal {
	if !listed(d.BoxDeny, h) {
		return nil
	}
	return Denied(classDenied, "the host is on this box's deny list", "Start the box with a net.egress.deny that does not cover the host.")
}

func (d *Dialer) machineHosts(h hostport.Host) *Refusal {
	if d.AllowHosts == nil || listed(d.AllowHosts, h) {
		return nil
	}
	return Denied(classNotAllowed, "the host is not on this machine's allow list", "Have the operator add the host to OMB_EGRESS_ALLOW.")
}

func (d *Dialer) boxHosts(h hostport.Host) *Refusal {
	if d.BoxHosts == nil || listed(d.BoxHosts, h) {
		return nil
	}
	return Denied(classNotAllowed, "the host is not on this box's allow list", "Start the box with --allow-host for this host and port.")
}

func (d *Dialer) refusedName(h hostport.Host) *Refusal {
	if h.Name == "" {
		return nil
	}
	why, refused := addrpolicy.RefusedName(h.Name)
	switch {
	case !refused:
		return nil
	case h.Name == "localhost":
		return loopback(className)
	}
	return Denied(className, why, "This name is closed to every box, and no query is sent for it.")
}

// listed tells whether a list names h.
func listed(list []hostport.Pattern, h hostport.Host) bool {
	return slices.ContainsFunc(list, func(p hostport.Pattern) bool { return p.Match(h) })
}

// deniedAnswer holds a deny list against an address, also one that an allowed
// name resolved to: whoever denies an address means the host behind it.
func (d *Dialer) deniedAnswer(ap netip.AddrPort) *Refusal {
	if d.Learn != nil || len(d.BoxDeny) == 0 {
		return nil
	}
	return d.boxDeny(hostport.Host{Addr: ap.Addr().Unmap(), Port: ap.Port()})
}

// Opinion is what a dialer says of a host without sending anything.
type Opinion struct {
	Host    string `json:"host"`    // canonical HOST:PORT
	Verdict string `json:"verdict"` // allowed, refused, or by-name: allowed so far
	Class   string `json:"class"`   // the refusal's, or the address's; empty for a name
	Why     string `json:"why"`
	Hint    string `json:"hint"` // what to do about a refusal
	// Lifted is a refusal that learn mode passes over.
	Lifted string `json:"lifted,omitempty"`
}

// The verdicts of an Opinion.
const (
	Allowed = "allowed"
	Refused = "refused"
	ByName  = "by-name"
)

// Judge answers from the rules that Dial goes by, the kernel's routing table
// included. A name is not looked up: each address that it resolves to is
// judged when it is dialled.
func (d *Dialer) Judge(h hostport.Host) Opinion {
	o := d.opinion(h)
	if d.Learn != nil && o.Verdict != Refused {
		strict := *d
		strict.Learn = nil
		if s := strict.opinion(h); s.Verdict == Refused {
			o.Lifted = s.Why
		}
	}
	return o
}

func (d *Dialer) opinion(h hostport.Host) Opinion {
	ap := netip.AddrPortFrom(h.Addr, h.Port)
	r := d.permitted(h)
	if r == nil {
		r = d.Budget.refusal()
	}
	if r == nil && h.Addr.IsValid() {
		r = d.judge(ap)
	}
	o := Opinion{Host: h.String()}
	if r != nil {
		o.Verdict, o.Class, o.Why, o.Hint = Refused, r.Class, r.Reason, r.Hint
		return o
	}
	if !h.Addr.IsValid() {
		o.Verdict, o.Why = ByName, "the name is not refused; nothing was looked up, and every address that it resolves to is judged when the gate dials"
		return o
	}
	v := addrpolicy.Classify(h.Addr)
	o.Verdict, o.Class, o.Why = Allowed, string(v.Class), v.Reason
	if d.excepted(ap) && !v.Allowed {
		o.Why = "excepted by OMB_EGRESS_EXCEPT, though: " + v.Reason
	}
	return o
}
