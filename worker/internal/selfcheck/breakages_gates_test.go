package selfcheck

import "github.com/openmausbot/botbox/testbed/rig"

// ofGates are slips in what a box is given, and in its ways out.
var ofGates = []breakage{
	{"what no row lists passes", "E3", []rig.Edit{
		{boxenvGo, `	return Unlisted, "no row of the table lets it in"`, `	return Pass, "no row of the table lets it in"`},
	}},
	{"one extra name passes: BOX_TOKEN", "E2", []rig.Edit{
		{"shared/boxenv/refused.go", `	{"BOX_TOKEN", all, Refused, "a workspace credential"},`, `	{"BOX_TOKEN", all, Pass, "a workspace credential"},`},
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
		{"worker/internal/broker/grant.go", `	for _, name := range taken {
		delete(env, name)
	}`, ``},
	}},
	{"the policy is off for literal addresses", "W2", []rig.Edit{
		{judgeGo, `return []netip.AddrPort{ap}, d.byPolicy(ap)`, `return []netip.AddrPort{ap}, nil`},
		{dialerGo, `			if r := d.judge(actual); r != nil {
				return r
			}`, `			_ = actual`},
	}},
	{"the loopback is an exception from the address policy", "W2", []rig.Edit{
		{judgeGo, `	if r := d.deniedAnswer(ap); r != nil || d.excepted(ap) {`, `	if r := d.deniedAnswer(ap); r != nil || ap.Addr().IsLoopback() {`},
		{judgeGo, `if r := d.byPolicy(ap); r != nil || d.excepted(ap) {`, `if r := d.byPolicy(ap); r != nil || ap.Addr().IsLoopback() {`},
	}},
	{"any grant will do", "B6", []rig.Edit{
		{brokerGo, `	if !ok {
		return t, nil, "missing_grant"
	}`, `	if !ok {
		for _, g = range grants {
		}
	}`},
	}},
	{"the box's own Authorization goes along", "B4", []rig.Edit{
		{headersGo, `	{"authorization", whyCredential},
	{"proxy-authorization", whyCredential},
	{"x-api-key"`, `	{"proxy-authorization", whyCredential},
	{"x-api-key"`},
	}},
	{"the box's own cookies go along", "B4", []rig.Edit{
		{headersGo, `	{"cookie", whyCredential},
	{"cookie2", whyCredential},
	{"x-auth-token"`, `	{"x-auth-token"`},
	}},
}
