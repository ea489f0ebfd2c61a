package slips

import "github.com/openmausbot/botbox/testbed/rig"

// ofGates are slips in what a box is given, and in its ways out.
var ofGates = []slip{
	{"what no row lists passes", "E3", []rig.Edit{
		{boxenvGo, `	return Unlisted, "no row of the table lets it in"`, `	return Pass, "no row of the table lets it in"`},
	}},
	{"one extra name passes: BOX_TOKEN", "E2", []rig.Edit{
		{refusedGo, `	{"BOX_TOKEN", all, Refused, "a workspace credential"},`, `	{"BOX_TOKEN", all, Pass, "a workspace credential"},`},
	}},
	{"what was dropped is told and stays", "E1", []rig.Edit{
		{prepareGo, `		delete(given, name)
	}
	keys,`, `		_ = name
	}
	keys,`},
	}},
	{"a key stays where its token belongs", "B1", []rig.Edit{
		{prepareGo, `	maps.Copy(t.Plan.Env, issued.Env)
	granted`, `	for name, value := range issued.Env {
		if _, there := t.Plan.Env[name]; !there {
			t.Plan.Env[name] = value
		}
	}
	granted`},
		{grantGo, `	for _, name := range taken {
		delete(env, name)
	}`, ``},
	}},
	{"the policy is off for literal addresses", "W2", []rig.Edit{
		{judgeGo, `return []netip.AddrPort{ap}, d.byPolicy(ap)`, `return []netip.AddrPort{ap}, nil`},
		{dialerGo, `			if r := d.judge(actual); r != nil {
				return r
			}`, `			_ = actual`},
	}},
	{"the box's own cookies go along", "B4", []rig.Edit{
		{headersGo, `	{"cookie", whyCredential},
	{"cookie2", whyCredential},
	{"x-auth-token"`, `	{"x-auth-token"`},
	}},
	{"one extra name passes: SSH_AUTH_SOCK", "E05", []rig.Edit{
		{refusedGo, `{"SSH_AUTH_SOCK", all, Refused,`, `{"SSH_AUTH_SOCK", all, Pass,`},
	}},
	{"no proxy is named in lower case", "E03", []rig.Edit{
		{"shared/boxenv/fixed.go", `	{"https_proxy", egressProxy, true, false, "some tools read lower case only"},
`, ``},
	}},
	{"the harness gate minds no letter case", "N15", []rig.Edit{
		{targetGo, `strings.HasPrefix(path, prefix)`, `strings.HasPrefix(strings.ToLower(path), prefix)`},
	}},
	{"the harness gate takes dot segments", "N15", []rig.Edit{
		{targetGo, `!plainPath(path) || `, ``},
	}},
	{"the harness gate takes escaped dots", "N15", []rig.Edit{
		{targetGo, "strings.IndexByte(`./\\%`, c) < 0", "strings.IndexByte(`/\\%`, c) < 0"},
	}},
	{"the harness gate's prefix is a letter short", "N15", []rig.Edit{
		{targetGo, `prefix   = "/api/internal/"`, `prefix   = "/api/internal"`},
	}},
	{"the egress gate dials by name what it judged by address", "N12", []rig.Edit{
		{dialerGo, `c, err := d.race(ctx, targets)`, `if again, r := d.lookup(ctx, h.Name); h.Name != "" && r == nil {
		ap := netip.AddrPortFrom(again[0].Unmap(), h.Port)
		if c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(ap)); err == nil {
			return c, nil
		}
		return nil, unreachable()
	}
	c, err := d.race(ctx, targets)`},
	}},
	{"the egress gate lets private networks through", "N11", []rig.Edit{
		{addressesGo, `	row("10.0.0.0/8", Private, "private network (RFC 1918)"),
`, ``},
	}},
	{"the egress gate lets the metadata service through", "N11", []rig.Edit{
		{addressesGo, `	row("169.254.0.0/16", LinkLocal, "link-local address"),
`, ``},
		{addressesGo, `	row("169.254.169.254/32", Metadata, "cloud metadata service"),
`, ``},
	}},
	{"port 25 is open", "N19", []rig.Edit{
		{policyGo, `return []uint16{25}`, `return []uint16{}`},
	}},
	{"a token is compared by its beginning only", "B5", []rig.Edit{
		{brokerGo, `	mac.Write([]byte(text))`, `	mac.Write([]byte(text)[:24])`},
	}},
	{"a token serves every provider of its conversation", "B6", []rig.Edit{
		{brokerGo, `	g, ok := grants[name]`, `	g, ok := grants["anthropic"]`},
	}},
	{"the query's key goes along", "B4", []rig.Edit{
		{proxyGo, `query := stripQuery(t.query)`, `query := t.query`},
	}},
	{"the path is not looked at", "B07", []rig.Edit{
		{serveGo, `!checkPath(t.path) || t.hasQuery`, `t.hasQuery`},
	}},
	{"two dots are a name", "B07", []rig.Edit{
		{pathsGo, `if name, _, _ := strings.Cut(plain, ";"); name == "." || name == ".." {`, `if name, _, _ := strings.Cut(plain, ";"); name == "." {`},
	}},
	{"the box chooses the upstream by Host", "B4", []rig.Edit{
		{proxyGo, `		Method: r.Method, URL: u, Header: h,`, `		Method: r.Method, URL: u, Header: h, Host: r.Host,`},
	}},
	{"an echoed key is not redacted from headers", "B09", []rig.Edit{
		{proxyGo, `			clean, n := key.redactor.text(v)`, `			clean, n := v, 0`},
	}},
}
