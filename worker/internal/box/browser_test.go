package box

import (
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/seccomp"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

func browser(argv ...string) spec.Spec {
	s := spec.Spec{Kind: "browser", Engine: "none", Argv: append([]string{"/usr/bin/chromium"}, argv...)}
	s.Home.Mode, s.Net.Mode = "private", "gated"
	return s
}

func plan(t *testing.T, s spec.Spec) *Plan {
	t.Helper()
	p, err := NewPlan(s, debian(), Ports{Egress: 3128, Broker: 18080, Harness: 8799, SOCKS: SOCKSPort})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestBrowserGolden(t *testing.T) {
	s := browser("--headless", "--no-sandbox", "https://example.com/")
	profile := "/data/.openmausbot/browser-profiles/b-12"
	s.Browser.Profile, s.Browser.DebugPipe = &profile, true
	p := plan(t, s)
	p.Env = map[string]string{"HOME": "/data", "BOTBOX": "1"}
	compare(t, "browser", render(p))
	checkOrder(t, p)
}

func TestChromesCommandLine(t *testing.T) {
	const ours = "--proxy-server=socks5://127.0.0.1:1080 --proxy-bypass-list=<-loopback> --disable-quic --webrtc-ip-handling-policy=disable_non_proxied_udp --force-webrtc-ip-handling-policy=disable_non_proxied_udp"
	for in, c := range map[string]struct {
		want    string
		dropped int
	}{
		"":                             {"--user-data-dir=/data/profile " + ours, 0},
		"--headless about:blank":       {"--headless about:blank --user-data-dir=/data/profile " + ours, 0},
		"--user-data-dir=/tmp/x":       {"--user-data-dir=/tmp/x " + ours, 0},
		"--proxy-server=direct://":     {"--proxy-server=direct:// --user-data-dir=/data/profile " + ours, 0}, // Chrome takes the last
		"--a -- --no-sandbox":          {"--a --user-data-dir=/data/profile " + ours + " -- --no-sandbox", 0}, // no flag: a file of that name
		"--no-sandbox --no-zygote":     {"--user-data-dir=/data/profile " + ours, 2},
		"--proxy-pac-url=http://x/ -x": {"-x --user-data-dir=/data/profile " + ours, 1},
		"-no-sandbox -no-proxy-server": {"--user-data-dir=/data/profile " + ours, 2}, // Chrome takes one dash, too
		"-user-data-dir=/tmp/x -":      {"-user-data-dir=/tmp/x - " + ours, 0},
		"--no-sandbox-x":               {"--no-sandbox-x --user-data-dir=/data/profile " + ours, 0},
	} {
		argv := append([]string{"chrome"}, strings.Fields(in)...)
		before := slices.Clone(argv)
		got, warnings := chromeArgv(argv, "/data/profile", true)
		if strings.Join(got[1:], " ") != c.want || len(warnings) != c.dropped || !slices.Equal(argv, before) {
			t.Errorf("%q: %q, %q", in, got[1:], warnings)
		}
	}
	if got, w := chromeArgv([]string{"chrome", "\t--no-sandbox ", "x", " --", "y"}, "/p", false); len(w) != 1 || !slices.Equal(got, []string{"chrome", "x", "--user-data-dir=/p", " --", "y"}) {
		t.Errorf("with blanks: %q, %q", got, w)
	}
	if got, _ := chromeArgv([]string{"chrome"}, "/p", false); !slices.Equal(got, []string{"chrome", "--user-data-dir=/p"}) {
		t.Errorf("without a gate: %q", got)
	}
	for _, f := range slices.Concat(chromeFlags, refusedFlags) {
		if f.reason == "" || flagOf(f.name) != f.name {
			t.Errorf("%+v", f)
		}
	}
}

func TestABrowsersNetwork(t *testing.T) {
	for mode, c := range map[string]struct {
		listen []int
		own    bool
		warned bool
	}{"gated": {[]int{1080}, true, false}, "none": {nil, true, false}, "shared": {nil, false, true}} {
		s := browser()
		s.Net.Mode = mode
		p := plan(t, s)
		if !slices.Equal(p.Listen, c.listen) || p.unshares("net") != c.own || slices.Contains(p.Warnings, SharedWarning) != c.warned || p.Seccomp != seccomp.Browser {
			t.Errorf("%s: %+v", mode, p)
		}
	}
	if p := plan(t, claude("private")); !p.unshares("net") || p.Seccomp != seccomp.Engine {
		t.Error("an engine's plan has become a browser's")
	}
}

func TestAProfileIsOneFolder(t *testing.T) {
	for _, path := range []string{
		"/data", "/", "/data/.openmausbot", "/data/.openmausbot/browser-profiles", "/data/.openmausbot/workspaces",
		"/run/x", "/etc/chromium", "/tmp", "/home",
	} {
		s := browser()
		s.Browser.Profile = &path
		if _, err := NewPlan(s, debian(), ports); err == nil || reason.Of(err).Code != reason.PathRefused {
			t.Errorf("%s: %v", path, err)
		}
	}
	path := "/data/.openmausbot/browser-profiles/b-12" // positive control
	s := browser()
	s.Browser.Profile = &path
	for _, m := range plan(t, s).Mounts {
		if m.Kind == Bind && m.Dest != path {
			t.Errorf("%s is in the box, too", m.Dest)
		}
	}
}

// A kit whose numbers begin at the pipe's would pass two folders as the pipe.
func TestNoPipeWhereThereIsNone(t *testing.T) {
	s := browser()
	s.Browser.DebugPipe = true
	if _, err := Assemble(plan(t, s), Programs{}, ChildFD); err == nil || reason.Of(err).Code != reason.BadSpec {
		t.Errorf("%v", err)
	}
}
