package box

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/seccomp"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// flag is a word of Chrome's command line that we put in or take out.
type flag struct {
	name   string // with its dashes
	value  string // what we put in; empty for a switch, and for what we take out
	reason string
}

func (f flag) String() string {
	if f.value == "" {
		return f.name
	}
	return f.name + "=" + f.value
}

// flagOf gives the name of the flag that Chrome reads in a word, "" for none.
// It takes one dash for two, and passes over blanks around the word.
func flagOf(word string) string {
	name, _, _ := strings.Cut(strings.Trim(word, " \t\n\v\f\r"), "=")
	switch {
	case len(name) < 2 || name[0] != '-':
		return ""
	case name[1] != '-':
		return "-" + name
	}
	return name
}

// SOCKSPort is where a browser box's gate listens in the box. It stands in
// chromeFlags, so no plan has another one.
const SOCKSPort = 1080

// chromeFlags make Chrome use the gate for everything, so that a page gets an
// answer. They are no wall: a Chrome that ignored them would find a loopback
// with one port, and nothing else. Chrome takes the last of two equal flags,
// so they stand behind the caller's own. There is no --proxy-pac-url among
// them: under a PAC file Chrome goes to loopback directly, whatever its bypass
// list says (otter-sec/rctf#136). And no --host-resolver-rules, which new
// Chromium no longer has: behind a SOCKS5 proxy it asks no resolver of its own.
var chromeFlags = []flag{
	{"--proxy-server", "socks5://127.0.0.1:1080", "every connection asks the SOCKS gate, by name: the gate resolves"},
	{"--proxy-bypass-list", "<-loopback>", "Chrome bypasses every proxy for loopback and link-local addresses unless told not to"},
	{"--disable-quic", "", "QUIC is UDP, which the gate does not carry: Chrome would try it first and wait"},
	{"--webrtc-ip-handling-policy", "disable_non_proxied_udp", "WebRTC sends UDP past every proxy, and tells pages the box's addresses"},
	{"--force-webrtc-ip-handling-policy", "disable_non_proxied_udp", "the same by its older name, which Chromium 156 no longer reads"},
}

// ChromeFlags gives the words that a gated browser's command line ends with.
func ChromeFlags() (words []string) {
	for _, f := range chromeFlags {
		words = append(words, f.String())
	}
	return words
}

// refusedFlags are taken out of the command line that a browser daemon
// writes, and named in the answer's warnings.
var refusedFlags = []flag{
	{"--no-sandbox", "", "Chrome's own sandbox works in this box, and keeps a page from the profile"},
	{"--disable-setuid-sandbox", "", "nothing is setuid in a box; daemons give it together with --no-sandbox"},
	{"--disable-namespace-sandbox", "", "it is the sandbox that works in this box"},
	{"--disable-seccomp-filter-sandbox", "", "it is half of Chrome's own sandbox"},
	{"--no-zygote", "", "without a zygote there is no sandbox"},
	{"--single-process", "", "one process has no sandbox"},
	{"--no-proxy-server", "", "it wins over --proxy-server, and nothing can be reached without the gate"},
	{"--proxy-pac-url", "", "it wins over --proxy-server, and nothing can be reached without the gate"},
	{"--proxy-auto-detect", "", "it wins over --proxy-server, and nothing can be reached without the gate"},
}

// shmSize is larger than an engine's: Chrome moves every picture through
// /dev/shm, and a tab whose piece does not fit dies.
const shmSize = 1024 * mib

// browse makes the plan a browser's. It differs from an engine's in this and
// in nothing else.
func (p *Plan) browse(s spec.Spec, m Machine) error {
	p.Seccomp = seccomp.Browser // Chrome's own sandbox needs namespaces
	p.Pipe = s.Browser.DebugPipe
	p.addTmpfs("/dev/shm", shmSize, "shared memory of this box only; Chrome moves pictures through it")
	profile := filepath.Join(m.Home, "profile") // in the box's private HOME
	if s.Browser.Profile != nil {
		profile = *s.Browser.Profile
		if within(m.Home, profile) {
			return reason.New(reason.PathRefused, "%s may not enter the box (browser.profile): it is the home folder, or holds it", profile)
		}
		p.addAsked(Bind, profile, KnownSocket, "this bot's own browser profile; no other bot's is in the box")
	}
	switch s.Net.Mode {
	case "gated":
		p.Listen = []int{p.Ports.SOCKS}
	case "shared":
		p.Namespaces = slices.DeleteFunc(p.Namespaces, func(n Namespace) bool { return n.Name == "net" })
		p.Warnings = append(p.Warnings, SharedWarning)
	}
	argv, warnings := chromeArgv(p.Argv, profile, s.Net.Mode == "gated")
	p.Argv, p.Warnings = argv, append(p.Warnings, warnings...)
	return p.debug(s)
}

// SharedWarning is what a box without a network namespace of its own is
// answered, and what the report says while one is open.
const SharedWarning = "net.mode shared: this browser reaches everything that the machine reaches, its loopback and abstract sockets too, and no gate is in between"

// chromeArgv rewrites a browser's command line: what would weaken it goes,
// what it needs comes behind the rest but before a "--", after which Chrome
// reads no flags.
func chromeArgv(argv []string, profile string, gated bool) (out, warnings []string) {
	end := slices.IndexFunc(argv, func(word string) bool { return flagOf(word) == "--" })
	if end < 0 {
		end = len(argv)
	}
	out = argv[:1:1]
	hasProfile := false
	for _, word := range argv[1:end] {
		name := flagOf(word)
		if i := slices.IndexFunc(refusedFlags, func(f flag) bool { return f.name == name }); i >= 0 {
			warnings = append(warnings, name+" was taken out of the browser's command line: "+refusedFlags[i].reason)
			continue
		}
		hasProfile = hasProfile || name == "--user-data-dir"
		out = append(out, word)
	}
	if !hasProfile { // Chrome 136 and newer is not debugged in its default folder
		out = append(out, "--user-data-dir="+profile)
	}
	if gated {
		out = append(out, ChromeFlags()...)
	}
	return append(out, argv[end:]...), warnings
}
