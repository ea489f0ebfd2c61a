package main

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// What is explained is what happens: the same command line says what the gate
// of a box of the same settings does.
func TestWhyHostIsWhatTheGateDoes(t *testing.T) {
	server := newFixture(t)
	p := newPlace(t)
	here := "127.0.0.1:" + server.port()
	for _, c := range []struct {
		env   []string
		allow []string
		host  string
		says  string
		code  string // what the box gets, 403 or 200
	}{
		{nil, nil, here, "refused, " + here + ": loopback needs no proxy", "403"},
		{[]string{"OMB_EGRESS_EXCEPT=" + here}, nil, here, "allowed, " + here + ": excepted by OMB_EGRESS_EXCEPT, though: ", "200"},
		{[]string{"OMB_EGRESS_EXCEPT=" + here}, []string{"a.example"}, here, "this box's allow list (not-allowed)\nhint: ", "403"},
		{[]string{"OMB_EGRESS_EXCEPT=" + here}, []string{"a.example", "127.0.0.1"}, here, "allowed, " + here, "200"},
		{[]string{"OMB_EGRESS_EXCEPT=" + here, "OMB_EGRESS_ALLOW=*.example"}, []string{"127.0.0.1"}, here, "this machine's allow list (not-allowed)", "403"},
		{[]string{"OMB_EGRESS_EXCEPT=" + here, "OMB_EGRESS_PORTS=443"}, nil, here, "this machine's list of ports (port)", "403"},
		{nil, nil, "169.254.169.254", "refused, 169.254.169.254:443: cloud metadata service (metadata)", "403"},
		{nil, nil, "[::ffff:10.0.0.1]:80", "refused, 10.0.0.1:80: private network (RFC 1918) (private)", "403"},
		{nil, nil, "Metadata.Google.Internal.:80", "refused, metadata.google.internal:80: cloud metadata name (name)", "403"},
		{nil, nil, "a.example:25", "refused, a.example:25: this port is closed to boxes (port)", "403"},
	} {
		args := []string{"why", "host", c.host}
		flags := []string{"run", "--standalone"}
		for _, pattern := range c.allow {
			args, flags = append(args, "--allow-host", pattern), append(flags, "--allow-host", pattern)
		}
		out := rig.Run(t, p.botbox(c.env, args...))
		if out.Code != 0 || !strings.Contains(out.Stdout, c.says) {
			t.Errorf("%v %v: %+v, want %q", c.env, args, out, c.says)
		}
		to := c.host
		if !strings.Contains(strings.TrimPrefix(to, "[::ffff:"), ":") {
			to += ":443"
		}
		got := rig.Run(t, p.botbox(c.env, append(flags, "--", "sh", "-c", fetch, "sh", "http://"+to+"/")...))
		if got.Stdout != c.code+"/000 " {
			t.Errorf("%v %v: the box got %+v, want %s", c.env, args, got, c.code)
		}
	}
	// A name is not looked up, and it says so.
	if out := rig.Run(t, p.botbox(nil, "why", "host", "no-such-name.example")); !strings.HasPrefix(out.Stdout, "allowed by name, no-such-name.example:443: ") || !strings.Contains(out.Stdout, "nothing was looked up") {
		t.Errorf("%+v", out)
	}
	for _, args := range [][]string{
		{"why", "host", "http://a.example/"}, {"why", "host", "a.example:0"}, {"why", "host", "2130706433"}, {"why", "host", "a.example", "--engine", "claude"},
		{"why", "syscall", "mount", "--box", "x"}, {"why", "reason", "usage", "--allow-host", "a.example"}, {"why", "host", "a.example", "--allow-host", "*"},
		{"why", "host", "a.example", "--box", "x", "--allow-host", "a.example"},
	} {
		if out := rig.Run(t, p.botbox(nil, args...)); out.Code != 100 || out.Stdout != "" || !strings.Contains(out.Stderr, "hint: ") {
			t.Errorf("%v: %+v", args, out)
		}
	}
}

// The worker is asked for a running box: its settings and lists count, not the
// caller's.
func TestWhyHostOfARunningBox(t *testing.T) {
	server := newFixture(t)
	p := newPlace(t)
	p.serve("OMB_EGRESS_EXCEPT=127.0.0.1:" + server.port())
	name := filepath.Join(p.top, "box.json")
	rig.Write(t, name, `{"id":"box_w","argv":["sh","-c","echo up; exec sleep 300"],"cwd":"`+p.work+`","env":{"PATH":"/usr/bin:/bin"},
		"net":{"egress":{"allow":["127.0.0.1","a.example"],"deny":["a.example:80"],"max_bytes":100}}}`)
	_, out := start(t, p.botbox(nil, "run", "--spec", name))
	line(t, out)
	for host, says := range map[string]string{
		"127.0.0.1:" + server.port(): "allowed, 127.0.0.1", "a.example": "allowed by name, a.example:443", "a.example:80": "this box's deny list (denied)",
		"b.example": "this box's allow list (not-allowed)", "127.0.0.1:1": "loopback needs no proxy",
	} {
		got := rig.Run(t, p.botbox([]string{"OMB_EGRESS_ALLOW=nothing.example"}, "why", "host", host, "--box", "box_w"))
		if got.Code != 0 || !strings.Contains(got.Stdout, says) {
			t.Errorf("%s: %+v, want %q", host, got, says)
		}
	}
	if server.hits.Load() != 0 {
		t.Error("a question reached the server")
	}
	for path, status := range map[string]int{
		"/v1/boxes/box_w/why": 400, "/v1/boxes/box_w/why?host=" + url.QueryEscape("a b"): 400, "/v1/boxes/no-such/why?host=a.example": 404,
	} {
		if got, answer := p.api("GET", path, ""); got != status {
			t.Errorf("%s: %d %s", path, got, answer)
		}
	}
	rig.Write(t, name, `{"id":"box_n","argv":["sh","-c","echo up; exec sleep 300"],"cwd":"`+p.work+`","env":{"PATH":"/usr/bin:/bin"},"net":{"mode":"none"}}`)
	_, out = start(t, p.botbox(nil, "run", "--spec", name))
	line(t, out)
	if got := rig.Run(t, p.botbox(nil, "why", "host", "a.example", "--box", "box_n")); got.Code != 100 || !strings.Contains(got.Stderr, "net.mode is none") {
		t.Errorf("a box without a gate: %+v", got)
	}
	if got := rig.Run(t, p.botbox(nil, "why", "host", "a.example", "--box", "no/such")); got.Code != 100 || !strings.Contains(got.Stderr, "reason: no-such-box") {
		t.Errorf("%+v", got)
	}
	if got := rig.Run(t, newPlace(t).botbox(nil, "why", "host", "a.example", "--box", "box_w")); got.Code != 100 || !strings.Contains(got.Stderr, "reason: no-worker") {
		t.Errorf("%+v", got)
	}
}

// The machine's own addresses are the routing table's: asked, not listed.
func TestWhyHostOfOurOwnAddresses(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, for a network with a neighbour")
	}
	if !gatetest.Inside(t) {
		return
	}
	gatetest.Neighbour(t)
	p := newPlace(t)
	for host, says := range map[string]string{
		gatetest.Far4: "allowed, " + gatetest.Far4 + ":443: ", "[" + gatetest.Far6 + "]:80": "(public)",
		gatetest.Near4: "refused, " + gatetest.Near4 + ":443: address of the machine that the box runs on (own)", "[" + gatetest.Near6 + "]": "(own)",
		"8.8.4.255": "(own)", "[2700::1]": "(unreachable)",
	} {
		if out := rig.Run(t, p.botbox(nil, "why", "host", host)); out.Code != 0 || !strings.Contains(out.Stdout, says) {
			t.Errorf("%s: %+v, want %q", host, out, says)
		}
	}
}
