package spec

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/openmausbot/botbox/worker/internal/secret"
)

// MaxBytes bounds a spec: an argument list may hold a whole prompt, and Linux
// takes 2 MiB of arguments and environment in all.
const MaxBytes = 4 << 20

// Spec is one boxed turn as it was asked for (DESIGN §8).
type Spec struct {
	V            int    `json:"v"`
	ID           string `json:"id,omitempty"`   // the asker's own name for the box
	Kind         string `json:"kind,omitempty"` // turn, browser, selfcheck
	Bot          string `json:"bot,omitempty"`
	Conversation string `json:"conversation,omitempty"`
	Turn         string `json:"turn,omitempty"`

	Audience *Audience `json:"audience,omitempty"`

	Engine  string   `json:"engine,omitempty"`
	Argv    []string `json:"argv"`
	Cwd     string   `json:"cwd"` // the work folder; empty = the box works in its HOME
	Home    Home     `json:"home,omitzero"`
	DataDir string   `json:"data_dir,omitempty"`
	Paths   Paths    `json:"paths,omitzero"`

	Env           map[string]Value `json:"env,omitempty"`
	EnvExtraNames []string         `json:"env_extra_names,omitempty"`

	Net    Net    `json:"net,omitzero"`
	Broker Broker `json:"broker,omitzero"`

	LocalVM bool    `json:"local_vm,omitempty"`
	Browser Browser `json:"browser,omitzero"`
	Limits  Limits  `json:"limits,omitzero"`
	User    User    `json:"user,omitzero"`
	TTY     bool    `json:"tty,omitempty"`
	Profile Profile `json:"profile,omitzero"`

	OnUnavailable string `json:"on_unavailable,omitempty"`
}

// Audience says for whom the turn runs; it rides into logs only.
type Audience struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

// Home says what HOME is in the box.
type Home struct {
	Mode   string   `json:"mode,omitempty"` // private, engine, server
	Path   string   `json:"path,omitempty"` // engine: the folder that becomes HOME
	Signin []Signin `json:"signin,omitempty"`
}

// Signin is one of a team's sign-in folders, let in over a folder of the
// engine home, which must be there. A folder, since engines renew their
// sign-in by rename.
type Signin struct {
	From string `json:"from"` // the team's folder, absolute
	As   string `json:"as"`   // its place in the engine home: .codex
	Mode string `json:"mode"` // rw-dir
}

// Profile takes from one bot's boxes what other bots' have. No network is
// net.mode none, and a host allow-list is net.egress.allow.
type Profile struct {
	Work string `json:"work,omitempty"` // rw, or ro: the work folder can only be read
	Keys string `json:"keys,omitempty"` // broker, or none: no key, no token in its place and no sign-in
}

// Paths are put back into the box, each at its own path.
type Paths struct {
	RW            []string `json:"rw,omitempty"`
	RO            []string `json:"ro,omitempty"`
	ArgvFiles     []string `json:"argv_files,omitempty"`
	PermSocketDir string   `json:"perm_socket_dir,omitempty"`
}

// Net says what the box reaches.
type Net struct {
	Mode              string     `json:"mode,omitempty"` // gated, none, shared
	Egress            Egress     `json:"egress,omitzero"`
	Harness           Harness    `json:"harness,omitzero"`
	Relay             bool       `json:"relay,omitempty"`
	LoopbackUpstreams []Loopback `json:"loopback_upstreams,omitempty"`
}

// Egress narrows what the egress gate, or a browser's SOCKS gate, lets
// through. Allow and Ports are pointers because absent means any public host
// and any port, and an empty list means none.
type Egress struct {
	Profile  string    `json:"profile,omitempty"` // public: there is no other
	Allow    *[]string `json:"allow,omitempty"`
	Deny     []string  `json:"deny,omitempty"` // wins over allow
	Ports    *[]int    `json:"ports,omitempty"`
	MaxBytes int64     `json:"max_bytes,omitempty"` // of all connections, both ways; 0 has no end
	Learn    bool      `json:"learn,omitempty"`     // the lists, the machine's too, are noted and not held
}

// Harness says which server the harness gate asks.
type Harness struct {
	Upstream string `json:"upstream,omitempty"` // tcp:HOST:PORT or unix:PATH
	Prefix   string `json:"prefix,omitempty"`
}

// Loopback is a model host on this machine's own loopback.
type Loopback struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// Broker names the credentials that stay outside.
type Broker struct {
	Keys []Key `json:"keys,omitempty"`
	MCP  []MCP `json:"mcp,omitempty"`
	TTLS int   `json:"ttl_s,omitempty"`

	Limits BrokerLimits `json:"limits,omitzero"`
}

// BrokerLimits bound what the turn can do with each of its grants; 0 is the
// default of each: 32 requests at a time, and no other bound.
type BrokerLimits struct {
	Concurrent     int   `json:"concurrent,omitempty"`
	RequestsPerMin int   `json:"requests_per_min,omitempty"`
	Bytes          int64 `json:"bytes,omitempty"`  // of bodies, both ways
	Tokens         int64 `json:"tokens,omitempty"` // in and out, as the provider tells
}

// Refs gives the names of the secrets that variables have their values from.
func (s *Spec) Refs() map[string]string {
	refs := map[string]string{}
	for name, v := range s.Env {
		if v.Ref != "" {
			refs[name] = v.Ref
		}
	}
	for _, k := range s.Broker.Keys {
		refs[k.Env] = strings.TrimPrefix(k.Secret, "ref:")
	}
	return refs
}

// Key is one provider key given by name instead of in the environment.
type Key struct {
	Env      string  `json:"env"`
	Provider string  `json:"provider"`
	Secret   string  `json:"secret"`
	BaseURL  *string `json:"base_url"`
}

// MCP is one URL server with its headers.
type MCP struct {
	Name    string           `json:"name"`
	URL     string           `json:"url"`
	Headers map[string]Value `json:"headers,omitempty"`
}

// Browser belongs to a box of kind browser.
type Browser struct {
	Launcher  bool    `json:"launcher,omitempty"`
	Profile   *string `json:"profile,omitempty"`    // the one folder that outlives the box
	DebugPipe bool    `json:"debug_pipe,omitempty"` // the asker's descriptors 3 and 4 are a debugging pipe
	DebugPort bool    `json:"debug_port,omitempty"` // the browser's --remote-debugging-port is served outside
}

// Limits bound what a box may use; 0 is the default of each.
//
// A box is idle while none of its processes starts another, all of them
// together use at most a fiftieth of one processor, no byte goes through
// its gates or its broker, and nobody types or prints on its terminal. What
// goes through its stdio is not seen, for nothing of ours stands there.
type Limits struct {
	Pids     int     `json:"pids,omitempty"`
	MemoryMB int     `json:"memory_mb,omitempty"`
	CPU      float64 `json:"cpu,omitempty"`
	TmpMB    int     `json:"tmp_mb,omitempty"`
	Nofile   int     `json:"nofile,omitempty"`
	WallS    int     `json:"wall_s,omitempty"` // the whole time that it may take
	IdleS    int     `json:"idle_s,omitempty"` // how long it may be idle
	// FileMB is the size of the largest file that it can write, and DiskFreeMB
	// what is left free wherever it can write: with less, it ends.
	FileMB     int `json:"file_mb,omitempty"`
	DiskFreeMB int `json:"disk_free_mb,omitempty"`
}

// User says which Linux user the box is on the machine.
type User struct {
	Mode string `json:"mode,omitempty"` // maus, per-bot
}

// Value is an environment value or a header: plain text, or the name of a
// secret that the worker holds ({"secret":"ref:NAME"}).
type Value struct {
	Text secret.Text
	Ref  string // NAME of ref:NAME; empty for plain text
}

// UnmarshalJSON takes a string or {"secret":"ref:NAME"}.
func (v *Value) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return fmt.Errorf("a value is not a string") // never the value itself
		}
		*v = Value{Text: secret.New(s)}
		return nil
	}
	var ref struct {
		Secret *string `json:"secret"`
	}
	if err := strict(b, &ref); err != nil || ref.Secret == nil {
		return fmt.Errorf(`a value is neither a string nor {"secret":"ref:NAME"}`)
	}
	name, ok := strings.CutPrefix(*ref.Secret, "ref:")
	if !ok || name == "" {
		return fmt.Errorf(`a secret is not named as ref:NAME`)
	}
	*v = Value{Ref: name}
	return nil
}

// MarshalJSON writes the value itself: a spec is written only by `botbox run`,
// into a sealed memfd that its own user's worker reads.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.Ref != "" {
		return json.Marshal(map[string]string{"secret": "ref:" + v.Ref})
	}
	return json.Marshal(v.Text.Reveal())
}
