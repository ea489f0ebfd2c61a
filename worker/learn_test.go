package main

import (
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/internet"
	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// A turn's worth of tools that ask a name server for real names: what --learn
// prints is the list with which the same turn succeeds, and nothing wider.
func TestLearningNames(t *testing.T) {
	needsRoot(t)
	if !gatetest.Inside(t) {
		return
	}
	w := newWeb(t)
	const turn = `set -e
		curl -sS https://www.example.com/; curl -sS http://www.example.com/
		rm -rf fruit; git clone -q https://git.example.com/fruit.git; cat fruit/note
		curl -sSf https://npm.example.com/fruit >package; test -s package; echo done`
	const want = "hello over https\nhello over http\nseed\ndone\n"
	const others = `for url in https://pypi.example.com/simple/ http://git.example.com/fruit.git https://example.com/ https://www.example.com.evil.example/; do
		curl -s -o /dev/null -w '%{http_code}/%{http_connect} ' "$url"; done; true`
	turns := func(flags []string, script string, env ...string) rig.Output {
		t.Helper()
		return rig.Run(t, w.botbox(append(w.trust(), env...), append(append([]string{"run", "--ro", w.public}, flags...), "--", "sh", "-c", script)...))
	}
	check := func(t *testing.T, base []string, strict ...string) {
		before := w.net.Hits()
		if out := turns(append(base, "--allow-host", "*.unused.example"), turn, strict...); out.Code == 0 || out.Stdout != "" || w.net.Hits() != before {
			t.Errorf("control: without learning: %+v", out)
		}
		out := turns(append(base, "--learn"), turn, strict...)
		if out.Code != 0 || out.Stdout != want {
			t.Fatalf("learning: %+v", out)
		}
		_, told, found := strings.Cut(out.Stderr, "botbox: learnt: ")
		var flags, hosts []string
		for line := range strings.Lines(told) {
			if host, ok := strings.CutPrefix(strings.TrimSpace(line), "--allow-host "); ok {
				flags, hosts = append(flags, "--allow-host", host), append(hosts, host)
			}
		}
		if names := strings.Join(hosts, " "); !found || names != "git."+internet.Domain+":443 npm."+internet.Domain+":443 www."+internet.Domain+":443 www."+internet.Domain+":80" {
			t.Errorf("learnt %q of\n%s", names, out.Stderr)
		}
		before = w.net.Hits()
		if out := turns(append(base, flags...), turn); out.Code != 0 || out.Stdout != want || w.net.Hits() == before {
			t.Errorf("with %q: %+v", flags, out)
		}
		before = w.net.Hits()
		if out := turns(append(base, flags...), others); out.Stdout != "000/403 403/000 000/403 000/403 " || w.net.Hits() != before {
			t.Errorf("wider than what was seen, %d connections: %+v", w.net.Hits()-before, out)
		}
	}
	t.Run("standalone", func(t *testing.T) { check(t, []string{"--standalone"}, "OMB_EGRESS_ALLOW=*.unused.example") })
	w.serve()
	t.Run("leased", func(t *testing.T) { check(t, nil) })
}
