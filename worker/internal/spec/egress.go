package spec

import "github.com/openmausbot/botbox/shared/hostport"

// MaxPatterns bounds each list of hosts or ports: every connection is held against it.
const MaxPatterns = 1024

// Lists are an Egress's lists as the gates read them. A list that is nil lets
// anything through; one that is empty and not nil, nothing.
type Lists struct {
	Allow, Deny []hostport.Pattern
	Ports       []uint16
}

// Lists reads the lists. An error names the field that is malformed.
func (e Egress) Lists() (l Lists, err error) {
	if e.Allow != nil {
		if l.Allow, err = patterns("allow", *e.Allow); err != nil {
			return l, err
		}
	}
	if l.Deny, err = patterns("deny", e.Deny); err != nil {
		return l, err
	}
	if e.Ports == nil {
		return l, nil
	}
	if len(*e.Ports) > MaxPatterns {
		return l, bad("field net.egress.ports: more than %d ports", MaxPatterns)
	}
	l.Ports = []uint16{}
	for _, port := range *e.Ports {
		if port < 1 || port > 65535 {
			return l, bad("field net.egress.ports: %d is no port", port)
		}
		l.Ports = append(l.Ports, uint16(port))
	}
	return l, nil
}

func patterns(field string, words []string) ([]hostport.Pattern, error) {
	if len(words) > MaxPatterns {
		return nil, bad("field net.egress.%s: more than %d patterns", field, MaxPatterns)
	}
	list := make([]hostport.Pattern, 0, len(words))
	for _, word := range words {
		p, err := hostport.ParsePattern(word)
		if err != nil {
			return nil, bad("field net.egress.%s: %w", field, err)
		}
		list = append(list, p)
	}
	return list, nil
}

// checkEgress reads the lists once, and refuses a policy where there is no
// gate that would hold it.
func (s *Spec) checkEgress() error {
	e := s.Net.Egress
	if _, err := e.Lists(); err != nil {
		return err
	}
	if e.MaxBytes < 0 {
		return bad("field net.egress.max_bytes: it is negative")
	}
	if e.Learn && s.Net.Mode != "gated" {
		return bad("field net.egress.learn: there is no gate to learn from, for net.mode is %s", s.Net.Mode)
	}
	if s.Net.Mode == "shared" && (e.Allow != nil || len(e.Deny) > 0 || e.Ports != nil || e.MaxBytes != 0) {
		return bad("field net.egress: no gate holds it, for net.mode is shared")
	}
	return nil
}
