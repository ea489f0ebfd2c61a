package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// misuseChecks are about the broker beyond the seed's: what a token, a request
// or an upstream could be made to do. Each makes one call that must arrive, as
// its control.
func misuseChecks() []Check {
	const off = "broker-off"
	return []Check{
		{"B07", broker, full, "choose the upstream by Host, absolute URI, //, @, dots, escapes and forwarding headers", "the fixed upstream, or a refusal",
			[]string{off, "broker-host"}, "inside: the plain call is answered; outside: the decoy was not reached, and the upstream saw the one path only", upstreamFixed},
		{"B08", broker, full, "call with tokens of this box that were revoked or have expired", "401 for each", []string{off, "broker-no-revoke"},
			"outside: each was good before; inside: the right token is answered", deadTokens},
		{"B09", broker, full, "have the upstream send the key back: as it is, in hex, in base64, in a header", "none of it arrives", []string{off, "broker-reflect"},
			"outside: the upstream sent it; inside: the rest of its answer arrives", reflectedKey},
		{"B10", broker, full, "call with the token of another box", "403, and the token is dead", []string{off, "broker-unbound"},
			"outside: it was good on its own listener before, and is dead there afterwards", foreignToken},
		{"B11", broker, full, "ask for endpoints that make keys or administer an account", "403 for each", []string{off, "broker-any-path"},
			"inside: the plain call is answered; outside: the upstream was not called", adminPaths},
		{"B12", broker, full, "TRACE, CONNECT, and headers that name another method", "405 or 400 for each", []string{off, "broker-any-method"},
			"inside: the plain call is answered; outside: the upstream was not called", otherMethods},
		{"B13", broker, full, "call what the upstream answers with a redirect", "502, and the redirect is not followed", []string{off, "broker-follow"},
			"outside: the upstream sent one; the place that it names was not reached", redirected},
		{"B14", broker, full, "show the token elsewhere than in the path: in headers, in the query, below no path", "401 or 404 for each",
			[]string{off, "broker-pathless"}, "inside: the plain call is answered; outside: the upstream was not called", misplacedToken},
	}
}

// call is the path and query of a check's own call, by which the upstream
// tells the calls apart.
func (f *Fixture) call(id string) string { return f.Call + "?check=" + id }

// refusedTag marks the attempts that the upstream must not see.
const refusedTag = "-refused"

// answered is the control inside: the plain call.
func (f *Fixture) answered(id string) Result {
	if r := tokenCall(f, id); r.Verdict != Pass {
		return unclear("the right call is not answered either: %s", r.Why)
	}
	return pass("it is answered")
}

// attempt is one request to the broker, as a hostile program writes it.
type attempt struct {
	request, host string
	headers       []string
}

func upstreamFixed(f *Fixture) Result {
	const id = "B07"
	base, _, ok := f.base()
	if !ok || f.Decoy == "" {
		return unclear("there is no broker's address, or the fixture names no decoy")
	}
	if r := f.answered(id); r.Verdict != Pass {
		return r
	}
	call := f.call(id)
	own := fmt.Sprintf("127.0.0.1:%d", f.BrokerPort)
	for _, a := range []attempt{
		{"GET " + base + call, f.Decoy, nil},
		{"GET http://" + f.Decoy + base + call, own, nil},
		{"GET http://" + f.Decoy + call, f.Decoy, nil},
		{"GET //" + f.Decoy + base + call, own, nil},
		{"GET " + base + "//" + f.Decoy + call, own, nil},
		{"GET " + base + "/@" + f.Decoy + call, own, nil},
		{"GET " + base + "@" + f.Decoy + call, own, nil},
		{"GET " + base + "/../" + f.Decoy + call, own, nil},
		{"GET " + base + "/..%2f..%2f" + f.Decoy + call, own, nil},
		{"GET " + base + "/%2f%2f" + f.Decoy + call, own, nil},
		{"GET " + base + "/v1/models/../../admin?check=" + id, own, nil},
		{"GET " + base + "/v1/models/%2e%2e/%2e%2e/admin?check=" + id, own, nil},
		{"GET " + base + call, own, []string{"X-Forwarded-Host: " + f.Decoy, "Forwarded: host=" + f.Decoy, "X-Host: " + f.Decoy}},
		{"GET " + base + call, own, []string{"X-Original-URL: http://" + f.Decoy + "/", "X-Rewrite-URL: /admin", "X-Forwarded-Prefix: /admin"}},
	} {
		got, err := ask(f.BrokerPort, a.request, a.host, a.headers)
		where := strings.NewReplacer(base, "BASE", f.Decoy, "DECOY").Replace(a.request + ", Host " + a.host)
		switch {
		case err != nil:
			return unclear("%s: %v", where, errno(err))
		case got.status == 200 && !strings.Contains(got.text, f.UpstreamOK):
			return fail("%s is answered by somebody else", where)
		case got.status != 200 && got.status/100 != 4:
			return unclear("%s is answered %d", where, got.status)
		}
	}
	return pass("one upstream, whatever the request says")
}

func deadTokens(f *Fixture) Result {
	const id = "B08"
	base, token, ok := f.base()
	if !ok || len(f.DeadTokens) < 2 {
		return unclear("there is no broker's address, or the fixture names no dead tokens")
	}
	for _, dead := range f.DeadTokens {
		if r := refusedCall(f, id, 401, strings.Replace(base, token, dead, 1)); r.Verdict != Pass {
			return r
		}
	}
	return pass("401 for %d", len(f.DeadTokens))
}

func foreignToken(f *Fixture) Result {
	base, token, ok := f.base()
	if !ok || f.ForeignToken == "" {
		return unclear("there is no broker's address, or the fixture names no other box's token")
	}
	return refusedCall(f, "B10", 403, strings.Replace(base, token, f.ForeignToken, 1))
}

func reflectedKey(f *Fixture) Result {
	base, _, ok := f.base()
	key, err := f.key()
	if !ok || err != nil || len(key) == 0 {
		return unclear("there is no broker's address, or no key")
	}
	a, err := get(f.BrokerPort, base+f.call("B09")+"&reflect=1")
	switch {
	case err != nil:
		return unclear("the broker does not answer: %v", errno(err))
	case a.status != 200 || !strings.Contains(a.text, f.UpstreamOK):
		return unclear("the upstream's answer does not arrive: status %d", a.status)
	}
	for form, text := range map[string]string{
		"it is": string(key), "hex": hex.EncodeToString(key), "base64": base64.StdEncoding.EncodeToString(key),
	} {
		if strings.Contains(a.text, strings.TrimRight(text, "=")) {
			return fail("the key comes back as %s", form)
		}
	}
	return pass("the answer arrives without it")
}

func adminPaths(f *Fixture) Result {
	const id = "B11"
	return f.refusedAttempts(id, []int{403}, func(base string) (all []attempt) {
		for _, path := range []string{"/v1/organizations/api_keys", "/v1/organizations/users", "/v1/organizations/workspaces", "/v1/api_keys", "/admin", "/v1/modelsx"} {
			all = append(all, attempt{request: "GET " + base + path + "?check=" + id + refusedTag},
				attempt{request: "POST " + base + path + "?check=" + id + refusedTag, headers: []string{"Content-Length: 0"}})
		}
		return all
	})
}

func otherMethods(f *Fixture) Result {
	const id = "B12"
	return f.refusedAttempts(id, []int{400, 405}, func(base string) []attempt {
		target := base + f.call(id+refusedTag)
		return []attempt{
			{request: "TRACE " + target}, {request: "TRACK " + target}, {request: "DELETE " + target}, {request: "PUT " + target, headers: []string{"Content-Length: 0"}},
			{request: "CONNECT 127.0.0.1:80"}, {request: "CONNECT " + f.Decoy},
			{request: "GET " + target, headers: []string{"X-HTTP-Method-Override: DELETE"}},
			{request: "GET " + target, headers: []string{"X-Method-Override: POST"}},
		}
	})
}

func redirected(f *Fixture) Result {
	const id = "B13"
	base, _, ok := f.base()
	if !ok || f.Decoy == "" {
		return unclear("there is no broker's address, or the fixture names no decoy")
	}
	switch a, err := get(f.BrokerPort, base+f.call(id)+"&redirect=1"); {
	case err != nil:
		return unclear("the broker does not answer: %v", errno(err))
	case a.status == 502:
		return pass("the redirect is an error")
	case a.status == 200:
		return fail("the redirect was followed")
	default:
		return unclear("the broker answers %d", a.status)
	}
}

func misplacedToken(f *Fixture) Result {
	const id = "B14"
	return f.refusedAttempts(id, []int{401, 404}, func(base string) []attempt {
		_, token, _ := f.base()
		call := f.call(id + refusedTag)
		return []attempt{
			{request: "GET " + call, headers: []string{"Authorization: Bearer " + token}},
			{request: "GET " + call, headers: []string{"X-Api-Key: " + token}},
			{request: "GET /anthropic" + call, headers: []string{"X-Api-Key: " + token}},
			{request: "GET /b/anthropic" + call, headers: []string{"X-Api-Key: " + token}},
			{request: "GET " + call + "&token=" + token + "&key=" + token},
		}
	})
}

// refusedAttempts wants one of the statuses for each attempt.
func (f *Fixture) refusedAttempts(id string, want []int, attempts func(base string) []attempt) Result {
	base, _, ok := f.base()
	if !ok {
		return unclear("there is no broker's address")
	}
	if r := f.answered(id); r.Verdict != Pass {
		return r
	}
	all := attempts(base)
	for i, a := range all {
		host := fmt.Sprintf("127.0.0.1:%d", f.BrokerPort)
		got, err := ask(f.BrokerPort, a.request, host, a.headers)
		if err != nil {
			return unclear("attempt %d: %v", i+1, errno(err))
		}
		if !slices.Contains(want, got.status) {
			return fail("attempt %d is answered %d", i+1, got.status)
		}
	}
	return pass("%d attempts refused", len(all))
}
