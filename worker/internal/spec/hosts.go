package spec

import (
	"slices"
	"strings"

	"github.com/openmausbot/botbox/shared/boxenv"
	"github.com/openmausbot/botbox/shared/hostport"
)

// Bounds of broker.hosts: each host is a name in a certificate that is sent at
// every handshake.
const (
	MaxHosts = 32
	maxPaths = 64
)

// Hosts gives a key to the few hosts that may get it, for a program that knows
// no other address than the vendor's own. In the box the variable holds a
// token; the TLS to these hosts ends at the broker.
type Hosts struct {
	Env   string   `json:"env"`
	Hosts []string `json:"hosts"`           // exact names, port 443
	Paths []string `json:"paths,omitempty"` // as in the broker's table, such as /v1/chat/**; none = every path
}

// checkHosts refuses what would put a key where nobody said so: a pattern, an
// address, a host with two keys, a box without a gate that could end its TLS.
func (s *Spec) checkHosts() error {
	if len(s.Broker.Hosts) == 0 {
		return nil
	}
	if s.Net.Mode != "gated" || s.Kind == "browser" || s.Profile.Keys == "none" {
		return bad("field broker.hosts: it takes a box of an engine with its gates and its keys")
	}
	var envs, hosts []string
	for _, h := range s.Broker.Hosts {
		if err := s.checkHost(h); err != nil {
			return err
		}
		envs, hosts = append(envs, h.Env), append(hosts, h.Hosts...)
	}
	if name, twice := repeated(envs); twice {
		return bad("field broker.hosts: the variable %s stands twice", name)
	}
	if name, twice := repeated(hosts); twice {
		return bad("field broker.hosts: the host %s stands twice, and can have one key only", name)
	}
	if len(hosts) > MaxHosts {
		return bad("field broker.hosts: more than %d hosts", MaxHosts)
	}
	return nil
}

func (s *Spec) checkHost(h Hosts) error {
	if why, ok := boxenv.Declarable(h.Env); !ok {
		return bad("field broker.hosts: %q can be no key's variable: %s", h.Env, why)
	}
	_, inEnv := s.Env[h.Env]
	if !inEnv && !slices.ContainsFunc(s.Broker.Keys, func(k Key) bool { return k.Env == h.Env }) {
		return bad("field broker.hosts: %s is declared, and not given", h.Env)
	}
	if len(h.Hosts) == 0 {
		return bad("field broker.hosts: %s has no host", h.Env)
	}
	for _, name := range h.Hosts {
		host, err := hostport.New(name, 443)
		if err != nil || host.Name != name || !strings.Contains(name, ".") {
			return bad("field broker.hosts: %q is no plain name of a host (lower case, no pattern, no address, no port)", name)
		}
	}
	if len(h.Paths) > maxPaths {
		return bad("field broker.hosts: more than %d paths", maxPaths)
	}
	for _, path := range h.Paths {
		if !isPathPattern(path) {
			return bad("field broker.hosts: %q is no path pattern (/v1/chat/**, /v1/models/*)", path)
		}
	}
	return nil
}

// isPathPattern: plain segments; "*" only at a segment's end, and "**" only as
// the last one.
func isPathPattern(p string) bool {
	if !strings.HasPrefix(p, "/") || len(p) > 512 {
		return false
	}
	segments := strings.Split(p[1:], "/")
	for i, segment := range segments {
		if segment == "**" && i == len(segments)-1 {
			continue
		}
		plain := strings.TrimSuffix(segment, "*")
		if plain == "." || plain == ".." || strings.Trim(plain, pathBytes) != "" {
			return false
		}
	}
	return true
}

const pathBytes = idBytes + "~@!$&'()+,;="

func repeated(names []string) (string, bool) {
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			return name, true
		}
		seen[name] = true
	}
	return "", false
}

// checkLogins: a sign-in can stay outside where the box's HOME is its own, so
// that it is not in it anyway.
func (s *Spec) checkLogins() error {
	switch {
	case len(s.Broker.Logins) == 0:
		return nil
	case s.Net.Mode != "gated" || s.Kind == "browser" || s.Profile.Keys == "none":
		return bad("field broker.logins: it takes a box of an engine with its gates and its keys")
	case s.Home.Mode != "private":
		return bad("field broker.logins: it takes home.mode private, for HOME of mode %s has the sign-in in it", s.Home.Mode)
	case len(s.Broker.Logins) > 1 || s.Broker.Logins[0] != s.Engine:
		return bad("field broker.logins: a box of engine %s can have %q only", s.Engine, s.Engine)
	}
	return nil
}
