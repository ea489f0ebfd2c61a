package gate

import (
	"slices"
	"sync"

	"github.com/openmausbot/botbox/shared/hostport"
)

// maxLessons is how many hosts a learning box can make us remember.
const maxLessons = 1024

// Lessons are the hosts that a learning box reached. The zero value is ready;
// nil learns nothing.
type Lessons struct {
	mu    sync.Mutex
	hosts map[hostport.Host]struct{}
	more  int // connections to hosts beyond maxLessons
}

func (l *Lessons) reached(h hostport.Host) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hosts == nil {
		l.hosts = map[hostport.Host]struct{}{}
	}
	if _, known := l.hosts[h]; !known && len(l.hosts) == maxLessons {
		l.more++
		return
	}
	l.hosts[h] = struct{}{}
}

// Advice is the shortest policy under which a box would have reached what it
// reached while it learnt. Every list is sorted; it is empty where nothing has
// to be changed, but for the two allow lists, which are always whole.
type Advice struct {
	Hosts        int      `json:"hosts"`                   // that were reached
	Allow        []string `json:"allow"`                   // for the box: --allow-host
	MachineAllow []string `json:"machine_allow"`           // OMB_EGRESS_ALLOW
	MachinePorts []uint16 `json:"machine_ports,omitempty"` // OMB_EGRESS_PORTS, if it lacked one
	BoxPorts     []uint16 `json:"box_ports,omitempty"`     // net.egress.ports, if it lacked one
	Deny         []string `json:"deny,omitempty"`          // entries of net.egress.deny that are in the way
	More         int      `json:"more,omitempty"`          // connections beyond what is remembered
}

// Advice looks at what the dialer's lists would have refused. Nil where it
// does not learn.
func (d *Dialer) Advice() *Advice {
	if d.Learn == nil {
		return nil
	}
	d.Learn.mu.Lock()
	defer d.Learn.mu.Unlock()
	hosts := make([]hostport.Host, 0, len(d.Learn.hosts))
	var ports []uint16
	for h := range d.Learn.hosts {
		hosts = append(hosts, h)
		ports = append(ports, h.Port)
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	a := &Advice{
		Hosts: len(hosts), More: d.Learn.more,
		Allow:        spell(hostport.Cover(hosts, d.BoxHosts)),
		MachineAllow: spell(hostport.Cover(hosts, d.AllowHosts)),
		MachinePorts: lacking(d.AllowPorts, ports),
		BoxPorts:     lacking(d.BoxPorts, ports),
	}
	for _, p := range d.BoxDeny {
		if slices.ContainsFunc(hosts, p.Match) {
			a.Deny = append(a.Deny, p.String())
		}
	}
	slices.Sort(a.Deny)
	a.Deny = slices.Compact(a.Deny)
	return a
}

func spell(list []hostport.Pattern) []string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = p.String()
	}
	return words
}

// lacking gives the ports that were used if a list did not have them all.
func lacking(list, used []uint16) []uint16 {
	if list == nil || !slices.ContainsFunc(used, func(p uint16) bool { return !slices.Contains(list, p) }) {
		return nil
	}
	return used
}
