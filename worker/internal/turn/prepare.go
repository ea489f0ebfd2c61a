package turn

import (
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/openmausbot/botbox/shared/boxenv"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/seccomp"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/cgroup"
	"github.com/openmausbot/botbox/worker/internal/engine"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/devtools"
	"github.com/openmausbot/botbox/worker/internal/gate/signin"
	"github.com/openmausbot/botbox/worker/internal/secret"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// Turn is one box from its spec to its end.
type Turn struct {
	ID     string
	Spec   spec.Spec
	Plan   *box.Plan
	Kit    *box.Kit
	Since  time.Time
	runner *Runner
	gates  map[int]server // by port
	front  func(int, net.Listener) net.Listener
	egress gate.Dialer    // the machine's, narrowed by the spec
	hosts  *declared      // nil where the spec declares none
	live   *box.Live      // set when the engine may run
	relay  *signin.Relay  // set with it; nil in a box that has none
	debug  *devtools.Port // nil in a box that has none
	group  *cgroup.Group
	holder int      // Way.Asker
	kept   string   // its name in the supervisor's vault; empty = not there
	raw    []string // credentials that no broker stands for
	ready  chan struct{}
	ended  chan struct{}

	idle   *idleness              // nil = it may be idle
	over   atomic.Pointer[string] // why we ended it
	ending Ending                 // set before ended is closed
}

// Answer is what the asker is told of its box. It holds names only: no value
// of the environment, no token that is not the box's own, no key.
type Answer struct {
	ID           string            `json:"id"`
	Box          string            `json:"box"`
	Build        string            `json:"build"`
	EnvNames     []string          `json:"env_names"`
	DroppedEnv   []string          `json:"dropped_env"`
	MCPAddresses map[string]string `json:"mcp_addresses"`
	Loopbacks    map[string]string `json:"loopback_addresses"`   // of net.loopback_upstreams, in the box
	DebugPort    int               `json:"debug_port,omitempty"` // of a browser, on this machine's loopback
	Grants       []string          `json:"grants"`
	Unbrokered   []string          `json:"unbrokered"`
	Intercepted  []string          `json:"intercepted"`
	Layers       map[string]any    `json:"layers"`
	Warnings     []string          `json:"warnings"`
}

// Way is how a box comes into being.
type Way struct {
	First int // box.ChildFD or box.LeaseFD
	Asker int // the process that becomes bubblewrap, where no child of ours does
	// Change alters the plan of one of the self-check's own boxes. Nobody else
	// gives it, and no spec reaches it.
	Change func(*box.Plan)
	// Front stands before a gate of such a box: of a donated listener and its
	// port it makes the one that the gate serves. May be nil.
	Front func(port int, donated net.Listener) net.Listener
}

// Prepare makes a kit of a spec.
func (r *Runner) Prepare(s spec.Spec, way Way) (*Turn, Answer, error) {
	t := &Turn{
		Spec: s, runner: r, holder: way.Asker, front: way.Front, Since: time.Now(), ready: make(chan struct{}), ended: make(chan struct{}),
	}
	if r.Off != nil {
		if err := r.Off(); err != nil {
			return nil, Answer{}, r.Refuse(s, err)
		}
	}
	if err := r.admit(t, s.ID); err != nil {
		return nil, Answer{}, r.Refuse(s, err)
	}
	answer, err := t.prepare(way)
	if err != nil {
		t.debug.Close()
		r.Broker.Revoke(t.ID)
		r.forget(t)
		return nil, Answer{}, r.Refuse(s, err)
	}
	return t, answer, nil
}

func (t *Turn) prepare(way Way) (Answer, error) {
	r, s := t.runner, t.Spec
	if s.DataDir != "" && s.DataDir != r.Machine.DataDir {
		return Answer{}, reason.New(reason.BadSpec, "the spec is not usable: field data_dir: it is not this machine's (OMB_DATA_DIR)")
	}
	kept := false
	user, err := t.plan()
	defer func() {
		if !kept {
			user.Close()
		}
	}()
	if err != nil {
		return Answer{}, err
	}
	plan := t.Plan
	if err := t.openDebug(); err != nil {
		return Answer{}, err
	}
	if err := r.Groups.Check(t.limits(), r.NoGroups); err != nil {
		return Answer{}, err
	}
	if err := t.declareHosts(); err != nil {
		return Answer{}, err
	}
	if err := t.chooseGates(); err != nil {
		return Answer{}, err
	}
	answer, err := t.fillEnvironment()
	if err != nil {
		return Answer{}, err
	}
	if way.Change != nil {
		way.Change(plan)
	}
	bwrap, err := box.FindBwrap(r.Path)
	if err != nil {
		return Answer{}, err
	}
	kept = true // by the kit, which closes it also where it fails
	t.Kit, err = box.Assemble(plan, box.Programs{Bwrap: bwrap, Entry: r.Entry}, way.First)
	if err != nil {
		return Answer{}, err
	}
	if err := t.checkDisk(); err != nil {
		t.Kit.Close()
		return Answer{}, err
	}
	if way.Asker != 0 {
		t.Kit.HeldBy(way.Asker)
	}
	return t.describe(answer), nil
}

// fillEnvironment decides about every name that was passed, takes the keys
// out, and puts tokens in their place.
func (t *Turn) fillEnvironment() (Answer, error) {
	r, s := t.runner, t.Spec
	rotations := r.Broker.Rotations()
	given, err := r.resolve(s)
	if err != nil {
		return Answer{}, err
	}
	var answer Answer
	declared := t.takeDeclared(given)
	names := boxenv.Filter(given, s.Engine, s.EnvExtraNames)
	answer.DroppedEnv = names.Dropped
	// A browser has no use for a key, and runs what any page sends it.
	if s.Kind == "browser" || s.Profile.Keys == "none" {
		answer.DroppedEnv = append(answer.DroppedEnv, names.Credential...)
		slices.Sort(answer.DroppedEnv)
	}
	for _, name := range answer.DroppedEnv {
		delete(given, name)
	}
	keys, unbrokered, err := broker.Take(given, s.Engine)
	if err != nil {
		return answer, err
	}
	answer.Unbrokered = left(given, unbrokered, names.Credential)
	gated := s.Net.Mode == "gated" && s.Kind != "browser" // whose gate is named by its command line
	t.Plan.Env = boxenv.Fixed(0)
	if gated {
		t.Plan.Env = boxenv.Fixed(r.Ports.Harness)
	}
	for name, value := range given {
		t.Plan.Env[name] = value.Reveal()
	}
	t.Plan.Env["HOME"] = t.Plan.Home
	t.Plan.Env["USER"], t.Plan.Env["LOGNAME"] = r.Machine.User, r.Machine.User
	if gated {
		keys = append(keys, declared...)
		err = t.issue(keys, &answer)
		if err == nil && r.Broker.Rotations() != rotations { // what was read may be a former key
			err = t.rotate(keys)
		}
	} else {
		t.withoutNetwork(keys, &answer)
	}
	return answer, err
}

// left are the credentials that are still among what was given.
func left(given map[string]secret.Text, lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(name string) bool { return given[name].Empty() })
}

// pathOf is the PATH that the box will have.
func pathOf(s spec.Spec) string {
	if path := s.Env["PATH"].Text.Reveal(); path != "" {
		return path
	}
	return boxenv.Fixed(0)["PATH"]
}

// resolve gathers the values that a spec gives, those of named secrets too.
func (r *Runner) resolve(s spec.Spec) (map[string]secret.Text, error) {
	given := map[string]secret.Text{}
	for name, v := range s.Env {
		if v.Ref == "" {
			given[name] = v.Text
			continue
		}
		text, err := r.Secrets(v.Ref)
		if err != nil {
			return nil, err
		}
		given[name] = text
	}
	for _, k := range s.Broker.Keys {
		if verdict, _ := boxenv.Decide(k.Env, s.Engine, nil); verdict != boxenv.Credential {
			return nil, reason.New(reason.BadSpec, "the spec is not usable: field broker.keys: %q is no variable of a credential", k.Env)
		}
		text, err := r.Secrets(strings.TrimPrefix(k.Secret, "ref:"))
		if err != nil {
			return nil, err
		}
		given[k.Env] = text
		if k.BaseURL == nil {
			continue
		}
		name, known := broker.BaseURLName(k.Provider)
		if !known {
			return nil, reason.New(reason.BadSpec, "the spec is not usable: field broker.keys: there is no provider %q", k.Provider)
		}
		given[name] = secret.New(*k.BaseURL)
	}
	return given, nil
}

// issue makes the box's grants and rewrites the engine's settings for them.
func (t *Turn) issue(keys []broker.Key, answer *Answer) error {
	loopbacks, err := t.loopbacks()
	if err != nil {
		return err
	}
	issued, err := t.runner.Broker.Issue(broker.Turn{
		Loopbacks: loopbacks,
		Box:       t.ID, Bot: t.Spec.Bot, Conversation: t.Spec.Conversation, Engine: t.Spec.Engine,
		Keys: keys, Unbrokered: answer.Unbrokered, TTL: time.Duration(t.Spec.Broker.TTLS) * time.Second,
		Refs: t.Spec.Refs(), Limits: t.brokerLimits(),
		Alone: t.Plan.Alone(t.Spec.Engine), Given: t.Plan.Env, Dial: t.dialDeclared, Logins: t.Spec.Broker.Logins,
	})
	if err != nil {
		return err
	}
	t.launch(issued)
	answer.Grants, answer.Loopbacks = issued.Grants, issued.Addresses
	answer.Unbrokered, answer.Intercepted = issued.Unbrokered, issued.Intercepted
	t.runner.raw(issued.Unbrokered)
	t.runner.intercepts(issued.Intercepted)
	t.trustDeclared(answer)
	return t.issueMCP(answer)
}

// rotate reads the secrets of the turn's keys again.
func (t *Turn) rotate(keys []broker.Key) error {
	refs := t.Spec.Refs()
	for _, k := range keys {
		if ref := refs[k.EnvName]; ref != "" {
			if _, err := t.runner.Broker.Rotate(t.runner.Secrets, ref); err != nil {
				return err
			}
		}
	}
	return nil
}

// launch lays an engine's settings over the driver's.
func (t *Turn) launch(issued broker.Issued) {
	for name, value := range issued.Quiet {
		if _, given := t.Plan.Env[name]; !given {
			t.Plan.Env[name] = value
		}
	}
	maps.Copy(t.Plan.Env, issued.Env)
	granted := len(issued.Grants) > 0
	known := engine.Of(t.Spec.Argv, nil) == t.Spec.Engine
	switch n := engine.Words(t.Spec.Argv); {
	case known, granted && engine.Takes(t.Spec.Argv): // a wrapper of the engine's must not miss the broker
		t.Plan.Argv = slices.Concat(t.Spec.Argv[:n], issued.Argv, t.Spec.Argv[n:])
	case granted && len(issued.Argv) > 0:
		t.Plan.Warnings = append(t.Plan.Warnings, t.Spec.Argv[0]+" takes no arguments of "+t.Spec.Engine+
			"'s: if it starts one, that may not find the broker; name the engine's own program as the command")
	}
	for name, content := range issued.Files {
		t.Plan.AddFile(name, content)
	}
}

// withoutNetwork keeps keys out of a box that could not use them.
func (t *Turn) withoutNetwork(keys []broker.Key, answer *Answer) {
	for _, k := range keys {
		answer.DroppedEnv = append(answer.DroppedEnv, k.EnvName)
	}
	slices.Sort(answer.DroppedEnv)
	t.runner.raw(answer.Unbrokered)
}

// describe completes the answer. Its lists are never null.
func (t *Turn) describe(a Answer) Answer {
	a.ID, a.Box, a.Build = t.ID, "bwrap", wire.Build
	a.EnvNames = slices.Sorted(maps.Keys(t.Plan.Env))
	if a.MCPAddresses == nil {
		a.MCPAddresses = map[string]string{}
	}
	if t.debug != nil {
		a.DebugPort = t.debug.Number
	}
	if a.Loopbacks == nil {
		a.Loopbacks = map[string]string{}
	}
	a.Layers = map[string]any{"seccomp": "filter", "nested_sandbox": t.Plan.Seccomp == seccomp.Browser}
	a.Layers["landlock"], a.Layers["limits"] = box.Landlock(), t.Holds()
	for _, ns := range t.Plan.Namespaces {
		a.Layers[ns.Name] = true
	}
	a.Layers["user"] = t.runner.Machine.User // says more than that it has a user namespace, which every box has
	if t.Plan.User != nil {
		a.Layers["user"] = "per-bot"
	}
	for _, list := range []*[]string{&a.DroppedEnv, &a.Grants, &a.Unbrokered, &a.Intercepted, &a.Warnings} {
		if *list == nil {
			*list = []string{}
		}
	}
	a.Warnings = append(a.Warnings, t.Plan.Warnings...)
	if t.Learns() {
		a.Warnings = append(a.Warnings, LearnWarning)
	}
	t.raw = a.Unbrokered
	for _, name := range a.Unbrokered {
		a.Warnings = append(a.Warnings, name+" stays raw in the box: the broker cannot stand for it, unless broker.hosts (--broker-host "+name+"=HOST) says where it goes")
	}
	for _, host := range a.Intercepted {
		a.Warnings = append(a.Warnings, "the TLS to "+host+" ends at the broker, which puts the key in: broker.hosts declares it")
	}
	return a
}
