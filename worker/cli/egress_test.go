package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/gate"
)

func TestEgressSettings(t *testing.T) {
	for _, c := range []struct{ allow, ports, except, want string }{ // want: allow ports refuse except, or the variable that is named
		{"", "all", "", "[] any [25] []"},
		{" ", "", " ", "[] any [25] []"},
		{"a.example, *.B.example.:443 ,[2600::1]", "80, 443", "", "[a.example *.b.example:443 [2600::1]] [80 443] [25] []"},
		{"", "25", "", "[] [25] [] []"},
		{"", "all", "127.0.0.1:80,[::ffff:10.0.0.1]:443,[fd00::1]:1", "[] any [25] [127.0.0.1:80 10.0.0.1:443 [fd00::1]:1]"},
		{",", "all", "", "OMB_EGRESS_ALLOW"},
		{"a.example,", "all", "", "OMB_EGRESS_ALLOW"},
		{"*", "all", "", "OMB_EGRESS_ALLOW"},
		{"", "0", "", "OMB_EGRESS_PORTS"},
		{"", "080", "", "OMB_EGRESS_PORTS"},
		{"", "80 443", "", "OMB_EGRESS_PORTS"},
		{"", "any", "", "OMB_EGRESS_PORTS"},
		{"", "all", "127.0.0.1", "OMB_EGRESS_EXCEPT"},
		{"", "all", "a.example:80", "OMB_EGRESS_EXCEPT"},
		{"", "all", "[fe80::1%eth0]:80", "OMB_EGRESS_EXCEPT"},
		{"", "all", "127.0.0.1:080", "OMB_EGRESS_EXCEPT"},
		{"", "all", "10.0.0.0/8:80", "OMB_EGRESS_EXCEPT"},
	} {
		s := Settings{EgressAllow: c.allow, EgressPorts: c.ports, EgressExcept: c.except}
		d, err := s.egress()
		got := fmt.Sprint(d.AllowHosts, d.AllowPorts, d.RefusePorts, d.Except)
		if d.AllowPorts == nil {
			got = fmt.Sprint(d.AllowHosts, " any ", d.RefusePorts, d.Except)
		}
		if err != nil {
			got = err.Error()
		}
		bad := strings.HasPrefix(c.want, "OMB_")
		if bad != (err != nil) || bad && (reason.Of(err).Code != reason.BadSetting || !strings.Contains(got, c.want)) || !bad && got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// An exception matches what it was written for, and a list is read back as it
// is reported.
func FuzzEgressSettings(f *testing.F) {
	f.Add("a.example,*.b.example:443", "80,443", "127.0.0.1:80,[::ffff:10.0.0.1]:1")
	f.Fuzz(func(t *testing.T, allow, ports, except string) {
		s := Settings{EgressAllow: allow, EgressPorts: ports, EgressExcept: except}
		d, err := s.egress()
		if err != nil {
			if reason.Of(err).Code != reason.BadSetting {
				t.Errorf("%v", err)
			}
			return
		}
		shown := egressOf(d)
		again := Settings{EgressAllow: strings.Join(shown.Allow, ","), EgressPorts: joined(d.AllowPorts), EgressExcept: strings.Join(shown.Except, ",")}
		if back, err := again.egress(); err != nil || fmt.Sprint(back) != fmt.Sprint(d) {
			t.Errorf("%+v is read back as %+v, %v", d, back, err)
		}
		for _, ap := range d.Except {
			h, err := hostport.Parse(ap.String())
			if err != nil || (&gate.Dialer{Except: d.Except, RefusePorts: []uint16{}}).Judge(h).Verdict != gate.Allowed {
				t.Errorf("the exception %v matches nothing: %v", ap, err)
			}
		}
	})
}

func TestAdvice(t *testing.T) {
	for want, a := range map[string]*gate.Advice{
		"botbox: learnt: the box reached no host; this suffices: --net none\n": {},
		"botbox: learnt: 2 hosts with their ports were reached; these flags suffice:\n  --allow-host a.example:1\n  --allow-host b.example\n" +
			"botbox: learnt: a machine whose list suffices:\n  OMB_EGRESS_ALLOW=a.example:1,b.example:2\n  OMB_EGRESS_PORTS=1,2\n" +
			"botbox: learnt: net.egress.ports lacks some: 1,2\nbotbox: learnt: net.egress.deny is in the way: *.example\n" +
			"botbox: learnt: 7 connections went to more hosts than are remembered, so the lists are not whole\n": {
			Hosts: 2, Allow: []string{"a.example:1", "b.example"}, MachineAllow: []string{"a.example:1", "b.example:2"},
			MachinePorts: []uint16{1, 2}, BoxPorts: []uint16{1, 2}, Deny: []string{"*.example"}, More: 7},
	} {
		var b bytes.Buffer
		if printAdvice(&b, a); b.String() != want {
			t.Errorf("got\n%swant\n%s", &b, want)
		}
	}
}
