package cli

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/hostreport"
)

// Settings come from the environment (DESIGN §7).
type Settings struct {
	BotBox       string `envconfig:"OMB_BOT_BOX" means:"1 on, 0 off; unset: on in a Cloud home, off elsewhere (botbox run always boxes)"`
	CloudRole    string `envconfig:"OMB_CLOUD_ROLE" means:"home or team: a Cloud home"`
	CloudHarden  string `envconfig:"OMB_CLOUD_HARDEN" default:"1" means:"the supervisor: 0 skips hidepid and fly, strict makes a step that is refused fatal"`
	DataDir      string `envconfig:"OMB_DATA_DIR" means:"the data folder that no box sees; ~/.openmausbot if unset"`
	Port         uint16 `envconfig:"OMB_PORT" default:"8799" means:"the server's port: the harness gate's in the box, and its upstream outside"`
	RunDir       string `envconfig:"OMB_RUN_DIR" means:"sockets, 0700; $XDG_RUNTIME_DIR/botbox or /run/botbox if unset"`
	StateDir     string `envconfig:"OMB_STATE_DIR" means:"the database, 0700; $XDG_STATE_HOME/botbox, /var/lib/botbox or ~/.local/state/botbox if unset"`
	SecretsDir   string `envconfig:"OMB_SECRETS_DIR" means:"one file a secret, for ref:NAME in a spec: a folder of mode 0700, or fd:N for one that is open, or for a pipe with NAME=VALUE records, a NUL behind each; $CREDENTIALS_DIRECTORY if unset"`
	Credentials  string `envconfig:"CREDENTIALS_DIRECTORY" means:"systemd's credentials of the service"`
	EgressAllow  string `envconfig:"OMB_EGRESS_ALLOW" means:"host patterns, comma separated, that boxes may reach; unset or empty: any public host; *.x does not match x"`
	EgressPorts  string `envconfig:"OMB_EGRESS_PORTS" default:"all" means:"ports that the egress gate dials, comma separated; all is all but 25"`
	EgressExcept string `envconfig:"OMB_EGRESS_EXCEPT" means:"ADDR:PORT, comma separated: let through although the address policy refuses them; each is a warning in the report"`
	CheckFailed  string `envconfig:"OMB_CHECK_FAILED" default:"refuse" means:"what a worker does about specs after its self-check has failed: refuse (box_off), or warn, which shows in the report"`
	DrainSeconds uint16 `envconfig:"OMB_DRAIN_SECONDS" default:"4" means:"the whole time from the first stop signal to the end"`
	VsockPort    uint32 `envconfig:"OMB_VSOCK_PORT" default:"0" means:"vsock port, from 1024 on, that serves the signed report to this virtual machine's host, and to nobody else; 0: none"`
	BotUsers     string `envconfig:"OMB_BOT_USERS" default:"0" means:"1: a Linux user per bot, which needs botbox-supervisor, and no box without; 0: boxes run as the worker's user"`
	BotRange     string `envconfig:"OMB_BOT_USERS_RANGE" default:"300000-365535" means:"the supervisor: the user and group ids that bots get"`
	Log          string `envconfig:"OMB_LOG" default:"auto" means:"auto, journal, text or json; with +debug behind it also what the gates let through"`
	RuntimeHome  string `envconfig:"XDG_RUNTIME_DIR" means:"as the login set it"`
	StateHome    string `envconfig:"XDG_STATE_HOME" means:"as the user set it"`
}

// choices are the settings with a closed set of values.
func (s *Settings) choices() []struct {
	name, value string
	known       []string
} {
	return []struct {
		name, value string
		known       []string
	}{
		{"OMB_BOT_BOX", s.BotBox, []string{"", "0", "1"}},
		{"OMB_CLOUD_ROLE", s.CloudRole, []string{"", "home", "team"}},
		{"OMB_CLOUD_HARDEN", s.CloudHarden, []string{"", "0", "1", "strict"}},
		{"OMB_CHECK_FAILED", s.CheckFailed, []string{"refuse", "warn"}},
		{"OMB_BOT_USERS", s.BotUsers, []string{"", "0", "1"}},
		{"OMB_LOG", s.Log, []string{"auto", "journal", "text", "json", "auto+debug", "journal+debug", "text+debug", "json+debug"}},
	}
}

// Check refuses what we do not understand, by the variable's name only.
func (s *Settings) Check() error {
	for _, c := range s.choices() {
		if !slices.Contains(c.known, c.value) {
			return reason.New(reason.BadSetting, "%s is none of %s", c.name, strings.Join(quoted(c.known), ", "))
		}
	}
	for name, path := range map[string]string{"OMB_DATA_DIR": s.DataDir, "OMB_RUN_DIR": s.RunDir, "OMB_STATE_DIR": s.StateDir, "OMB_SECRETS_DIR": s.SecretsDir} {
		open := name == "OMB_SECRETS_DIR" && strings.HasPrefix(path, "fd:")
		if path != "" && !filepath.IsAbs(path) && !open {
			return reason.New(reason.BadSetting, "%s is not an absolute path", name)
		}
	}
	switch {
	case s.Port == 0:
		return reason.New(reason.BadSetting, "OMB_PORT is not a port")
	case s.VsockPort != 0 && (s.VsockPort < hostreport.FirstPort || s.VsockPort > hostreport.LastPort):
		return reason.New(reason.BadSetting, "OMB_VSOCK_PORT is neither 0 nor a port from %d to %d", hostreport.FirstPort, uint32(hostreport.LastPort))
	case s.Port == 3128 || s.Port == 18080:
		return reason.New(reason.BadSetting, "OMB_PORT is a port of the box's own (3128 and 18080 are)")
	}
	_, err := s.egress()
	return err
}

func quoted(words []string) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = strconv.Quote(w)
	}
	return all
}

// egress reads the three settings of the egress gate.
func (s *Settings) egress() (gate.Dialer, error) {
	var o gate.Dialer
	for _, text := range list(s.EgressAllow) {
		p, err := hostport.ParsePattern(text)
		if err != nil {
			return o, reason.New(reason.BadSetting, "OMB_EGRESS_ALLOW holds a malformed pattern: %w", err)
		}
		o.AllowHosts = append(o.AllowHosts, p)
	}
	if s.EgressPorts != "all" {
		for _, text := range list(s.EgressPorts) {
			port, err := hostport.ParsePort(text)
			if err != nil {
				return o, reason.New(reason.BadSetting, "OMB_EGRESS_PORTS holds something that is no port")
			}
			o.AllowPorts = append(o.AllowPorts, port)
		}
	}
	o.RefusePorts = slices.DeleteFunc(gate.DefaultRefusePorts(), func(p uint16) bool {
		return slices.Contains(o.AllowPorts, p) // opened by its number
	})
	for _, text := range list(s.EgressExcept) {
		h, err := hostport.Parse(text) // as a request is read, or an exception would never match one
		if err != nil || !h.Addr.IsValid() {
			return o, reason.New(reason.BadSetting, "OMB_EGRESS_EXCEPT holds something that is no ADDR:PORT")
		}
		o.Except = append(o.Except, netip.AddrPortFrom(h.Addr, h.Port))
	}
	return o, nil
}

// list splits at commas. An empty text is an empty list; an empty entry is
// kept, so that it is refused as malformed.
func list(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	words := strings.Split(text, ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	return words
}

func (s *Settings) drain() time.Duration { return time.Duration(s.DrainSeconds) * time.Second }

// runDir is where the worker's sockets are.
func (s *Settings) runDir() string {
	switch {
	case s.RunDir != "":
		return s.RunDir
	case s.RuntimeHome != "" && os.Geteuid() != 0:
		return filepath.Join(s.RuntimeHome, "botbox")
	}
	return "/run/botbox"
}

// stateDir is where the worker keeps its database.
func (s *Settings) stateDir(home string) string {
	switch {
	case s.StateDir != "":
		return s.StateDir
	case s.StateHome != "":
		return filepath.Join(s.StateHome, "botbox")
	case ownFolder("/var/lib/botbox") == nil:
		return "/var/lib/botbox"
	}
	return filepath.Join(home, ".local/state/botbox")
}

// dataDir is what no box sees.
func (s *Settings) dataDir(home string) string {
	if s.DataDir != "" {
		return s.DataDir
	}
	return filepath.Join(home, ".openmausbot")
}
