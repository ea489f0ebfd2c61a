package selfcheck

import (
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// mutation takes one protection away from the self-check's own box. A check
// that cannot fail proves nothing: under each mutation exactly those fail
// whose row in boxprobe's table names it.
type mutation struct {
	name   string
	takes  string
	change func(*outside, *box.Plan)
}

const shareNet = "share-net"

var mutations = []mutation{
	{"bind-data", "the mask: the data folder itself is in the box, read and write", bindData},
	{"share-pid", "the process namespace, and the box's own /proc", sharePID},
	{shareNet, "the network namespace; the gates then have ports of the machine's", shareNetwork},
	{"env-all", "the allow-list of names: what it dropped is set", envAll},
	{"tmp-shared", "what hides other turns' folders in /tmp, /var/tmp and /run", sharedTmp},
	{"broker-off", "the broker: the key itself is set, and no base URL", brokerOff},
	{"no-landlock", "the second write wall, and what keeps signals in", func(_ *outside, p *box.Plan) { p.Writable = nil }},
	{"no-limits", "the limits of processes and open files, and the sizes of private folders", noLimits},
}

// allMutations gives them in the order in which they change a plan.
func allMutations() []mutation {
	return slices.Concat(mutations, fileMutations, processMutations, environmentMutations, filterMutations, gateMutations)
}

// contradictory are pairs of which one undoes what the other does.
var contradictory = [][2]string{
	{"seccomp-off", "deny-too-much"}, // a filter that refuses is one
	{shareNet, "no-harness"},         // in a shared network the server itself answers
	{shareNet, "listener-released"},  // and holds the port
}

// chosen finds mutations by name, in the table's order.
func chosen(names []string) ([]mutation, error) {
	var all []mutation
	for _, m := range allMutations() {
		if slices.Contains(names, m.name) {
			all = append(all, m)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(allMutations(), func(m mutation) bool { return m.name == name }) {
			return nil, reason.New(reason.Usage, "there is no mutation %q; there are %s", name, strings.Join(mutationNames(), ", "))
		}
	}
	for _, pair := range contradictory {
		if slices.Contains(names, pair[0]) && slices.Contains(names, pair[1]) {
			return nil, reason.New(reason.Usage, "the mutations %s and %s cannot be in one box: the second undoes the first", pair[0], pair[1])
		}
	}
	return all, nil
}

func mutationNames() []string {
	var names []string
	for _, m := range allMutations() {
		names = append(names, m.name)
	}
	return names
}

// declared lists the checks that must fail under the mutations, sorted.
func (o *outside) declared(rows []row, under []mutation) []string {
	var ids []string
	for _, r := range rows {
		for _, m := range under {
			if slices.Contains(r.BrokenBy, m.name) && !o.nothing(r.ID, m.name) {
				ids = append(ids, r.ID)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// nothing tells whether this machine has nothing that the mutation could open
// to the check: no routes and no interface but lo to share, no Landlock to take
// away, no keyring that is open to us.
func (o *outside) nothing(id, mutation string) bool {
	switch id {
	case "N4":
		return o.NoRouteOutside && mutation == shareNet
	case "N5":
		return o.lone && mutation == shareNet
	case "N02":
		return o.noSix
	case "S10":
		return o.NoSessionKey != ""
	case "S15":
		return o.Landlock < 2
	case "S16":
		return o.Landlock < 6
	}
	return o.showsNothing(id, mutation)
}

// ports are those that every box has, on the server's own port the harness
// gate. In a network that is the machine's they may be taken, the last one by
// the server itself, so there they are free ones.
func (o *outside) ports(under []mutation) (box.Ports, error) {
	if !slices.ContainsFunc(under, func(m mutation) bool { return m.name == shareNet }) {
		return turn.DefaultPorts(o.HarnessPort), nil
	}
	var free [3]int
	for i := range free {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return box.Ports{}, reason.New(reason.System, "look for a free port: %w", err)
		}
		defer l.Close() // at the end, so that the three differ
		free[i] = l.Addr().(*net.TCPAddr).Port
	}
	return box.Ports{Egress: free[0], Broker: free[1], Harness: free[2]}, nil
}

// insert adds a mount while the box's root can still be written.
func insert(p *box.Plan, m box.Mount) {
	at := slices.IndexFunc(p.Mounts, func(m box.Mount) bool { return m.Kind == box.ROAgain })
	if at < 0 { // another mutation has taken them away
		at = len(p.Mounts)
	}
	p.Mounts = slices.Insert(p.Mounts, at, m)
}

// replace puts another mount where one is.
func replace(p *box.Plan, m box.Mount) {
	at := slices.IndexFunc(p.Mounts, func(old box.Mount) bool { return old.Dest == m.Dest })
	p.Mounts[at] = m
}

func without(p *box.Plan, namespace string) {
	p.Namespaces = slices.DeleteFunc(p.Namespaces, func(n box.Namespace) bool { return n.Name == namespace })
}

func bindData(o *outside, p *box.Plan) {
	replace(p, box.Mount{Kind: box.Bind, Source: o.DataDir, Dest: o.DataDir, Reason: "mutation bind-data"})
}

// sharePID binds the machine's /proc: without a process namespace of its own
// the kernel lets no user namespace mount another.
func sharePID(_ *outside, p *box.Plan) {
	without(p, "pid")
	replace(p, box.Mount{Kind: box.Bind, Source: "/proc", Dest: "/proc", Reason: "mutation share-pid"})
}

func shareNetwork(_ *outside, p *box.Plan) {
	without(p, "net")
	p.Spares = box.Spares{} // sockets of the machine's own network, which no worker takes
	usual := turn.DefaultPorts(0)
	if base, ok := p.Env[baseName]; ok {
		p.Env[baseName] = strings.Replace(base, ":"+strconv.Itoa(usual.Broker)+"/", ":"+strconv.Itoa(p.Ports.Broker)+"/", 1)
	}
	for name, value := range p.Env {
		if value == gateURL(usual.Egress) {
			p.Env[name] = gateURL(p.Ports.Egress)
		}
	}
}

func gateURL(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }

func envAll(o *outside, p *box.Plan) {
	for _, name := range o.names() {
		p.Env[name] = o.Marker
	}
}

// sharedTmp shares the canaries' folders and no others: the rest belongs to
// people who did not ask for a hostile visitor.
func sharedTmp(o *outside, p *box.Plan) {
	for _, file := range []string{o.TmpFile, o.VarTmpFile, o.RunFile} {
		dir := filepath.Dir(file)
		source, err := filepath.EvalSymlinks(dir) // /var/tmp may be a link
		if err != nil {
			source = dir // and opening it says why not
		}
		insert(p, box.Mount{Kind: box.Bind, Source: source, Dest: dir, Reason: "mutation tmp-shared"})
	}
}

func noLimits(_ *outside, p *box.Plan) {
	p.Pids, p.Nofile, p.FileMB = 0, 0, 0
	for i := range p.Mounts {
		p.Mounts[i].Size = 0
	}
}

func brokerOff(o *outside, p *box.Plan) {
	delete(p.Env, baseName)
	p.Env[keyName] = o.key
}
