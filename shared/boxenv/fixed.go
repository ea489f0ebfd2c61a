package boxenv

import "strconv"

// Given is a variable that we set.
type Given struct {
	Name, Value string
	Gate        bool // only in a box with gates
	Default     bool // what passes Filter under this name wins
	Reason      string
}

const egressProxy = "http://127.0.0.1:3128"
const noProxy = "localhost,127.0.0.1,::1"

// EntryPath is where boxentry stands in every box; nothing else of ours is
// there, and people's own ssh settings may name it.
const EntryPath = "/run/botbox/boxentry"

// sshProxy is what OpenSSH, which knows no proxy, runs for a connection.
const sshProxy = EntryPath + " connect %h %p"

// sshCommand puts its option before all that an ssh_config says.
const sshCommand = "ssh -o ProxyCommand='" + sshProxy + "'"

// SSHConfig is a file of OpenSSH's settings with the same, for who runs ssh
// itself. What NO_PROXY names is dialled directly, and a person's own settings
// come first.
const SSHConfig = "Host * !localhost !127.0.0.1 !::1\n\tProxyCommand " + sshProxy + "\n"

// harnessURL is completed by the harness gate's port.
const harnessURL = "http://127.0.0.1:"

var given = []Given{
	{"BOTBOX", "1", false, false, "lets a tool say why it has no network, and the self-check see its environment"},
	{"TMPDIR", "/tmp", false, false, "the box has a /tmp of its own; the machine's path may not exist in it"},
	{"PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin", false, true, "the image's own programs"},
	{"LANG", "C.UTF-8", false, true, "always there, and UTF-8"},

	{"HTTP_PROXY", egressProxy, true, false, "the egress gate"},
	{"HTTPS_PROXY", egressProxy, true, false, "the egress gate"},
	{"ALL_PROXY", egressProxy, true, false, "the egress gate; http, not socks5h, on which httpx ends at its import"},
	{"NO_PROXY", noProxy, true, false, "loopback only: a name in here is dialled directly and fails"},
	{"http_proxy", egressProxy, true, false, "curl reads the plain-http proxy in lower case only"},
	{"https_proxy", egressProxy, true, false, "some tools read lower case only"},
	{"all_proxy", egressProxy, true, false, "some tools read lower case only"},
	{"no_proxy", noProxy, true, false, "some tools read lower case only"},
	{"NODE_USE_ENV_PROXY", "1", true, false, "Node's fetch ignores the proxy names without it (22.21 and newer)"},
	{"GRPC_PROXY", egressProxy, true, false, "gRPC knows CONNECT only, so the URL is http"},
	{"grpc_proxy", egressProxy, true, false, "gRPC's C core reads lower case"},
	{"npm_config_proxy", egressProxy, true, false, "npm's own setting wins over a project's .npmrc"},
	{"npm_config_https_proxy", egressProxy, true, false, "npm's own setting wins over a project's .npmrc"},
	{"YARN_HTTP_PROXY", egressProxy, true, false, "yarn 2 and newer read no other name"},
	{"YARN_HTTPS_PROXY", egressProxy, true, false, "yarn 2 and newer read no other name"},
	{"GIT_SSH_COMMAND", sshCommand, true, false, "OpenSSH knows no proxy: boxentry asks the egress gate for it"},
	{"CARGO_NET_GIT_FETCH_WITH_CLI", "true", true, false, "the ssh in cargo's libgit2 knows no proxy: git's does, by the name above"},
	{"OMB_HARNESS_URL", harnessURL, true, true, "the harness gate, for the helpers of the chat server"},
}

// AllGiven gives the variables that we set, in the order of their table.
func AllGiven() []Given { return append([]Given(nil), given...) }

// Fixed gives what a box gets from us. harnessPort is the harness gate's port
// on the box's loopback; 0 is a box without gates (--net none or shared), which
// gets no proxy either. What passes Filter is laid over it.
func Fixed(harnessPort int) map[string]string {
	env := map[string]string{}
	for _, g := range given {
		switch {
		case g.Gate && harnessPort == 0:
		case g.Value == harnessURL:
			env[g.Name] = harnessURL + strconv.Itoa(harnessPort)
		default:
			env[g.Name] = g.Value
		}
	}
	return env
}
