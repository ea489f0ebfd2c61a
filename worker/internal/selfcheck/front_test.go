package selfcheck

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/box"
)

// A mutation of a gate that leaves the plan alone has a flaw, and each flaw is
// of a mutation.
func TestEveryGateMutationHasAFlaw(t *testing.T) {
	for _, m := range gateMutations {
		p := &box.Plan{Spares: box.Spares{V4: 1}}
		o := &outside{}
		m.change(o, p)
		changed := p.Spares.V4 == 0 || p.Lacks.KeepScore || o.holds || o.revive
		if _, ok := flaws[m.name]; ok == changed {
			t.Errorf("%s: a flaw %v, a change %v", m.name, ok, changed)
		}
	}
	for name := range flaws {
		if !slices.Contains(mutationNames(), name) {
			t.Errorf("nobody asks for the flaw %s", name)
		}
	}
}

// A front passes on what no flaw changes, word by word, also what the gate says
// unasked, and frees the box's listener when the gate is closed.
func TestFrontPassesOn(t *testing.T) {
	o := &outside{root: t.TempDir(), ours: "omb_t0_ours"}
	v := &visit{outside: o, boxPorts: box.Ports{Egress: 1, Broker: 2, Harness: 3}}
	donated, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if l := v.front(2, donated); l != donated {
		t.Error("a front stands there that no mutation asked for")
	}
	v.under, err = chosen([]string{"broker-host"})
	if err != nil {
		t.Fatal(err)
	}
	if l := v.front(1, donated); l != donated {
		t.Error("a front of another gate")
	}
	gate := v.front(2, donated)
	if gate == donated {
		t.Fatal("there is no front")
	}
	go func() {
		for {
			c, err := gate.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, "unasked\n")
				head, rest, err := readHead(c)
				if err == nil {
					io.WriteString(c, head+string(rest))
				}
			}()
		}
	}()
	const request = "GET /b/x HTTP/1.1\r\nHost: a\r\n\r\nbody"
	if got, err := talk(donated.Addr(), request); err != nil || got != "unasked\n"+request {
		t.Errorf("%q, %v", got, err)
	}
	gate.Close()
	if _, err := net.DialTimeout("tcp", donated.Addr().String(), time.Second); err == nil {
		t.Error("the box's listener is still open")
	}
	if _, err := net.Listen("unix", filepath.Join(o.root, "front-2")); err != nil {
		t.Errorf("the gate's listener: %v", err)
	}
}

func talk(to net.Addr, request string) (string, error) {
	c, err := net.Dial("tcp", to.String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(deadline())
	io.WriteString(c, request)
	text, err := io.ReadAll(c)
	return string(text), err
}

// Each flaw of the broker's turns what it is about, and nothing else.
func TestFlawsTurnTheirOwn(t *testing.T) {
	at := func(port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
	}
	o := &outside{ours: "omb_t0_ours", key: "sk-key", fixture: fixture{
		Call: "/v1/models", ForeignToken: "omb_t0_foreign", DeadTokens: []string{"omb_t0_dead"}, Decoy: "127.0.0.1:9",
	}}
	o.provider.address, o.decoy.address, o.away.address = at(1), at(9), at(3)
	const rest = " HTTP/1.1\r\nHost: here\r\nx-api-key: omb_t0_ours\r\n\r\n"
	const plain = "GET /b/omb_t0_ours/anthropic/v1/models?check=B5" + rest
	for name, c := range map[string]struct {
		head, changed string
		to            netip.AddrPort
	}{
		"broker-open":      {"GET /b/omb_t0_AAAA/anthropic/v1/models" + rest, "GET /b/omb_t0_ours/anthropic/v1/models" + rest, netip.AddrPort{}},
		"broker-any-grant": {"GET /b/omb_t0_ours/openai/v1/models" + rest, "GET /b/omb_t0_ours/anthropic/v1/models" + rest, netip.AddrPort{}},
		"broker-no-revoke": {"GET /b/omb_t0_dead/anthropic/v1/models" + rest, "GET /b/omb_t0_ours/anthropic/v1/models" + rest, netip.AddrPort{}},
		"broker-unbound":   {"GET /b/omb_t0_foreign/anthropic/v1/models" + rest, "GET /b/omb_t0_ours/anthropic/v1/models" + rest, netip.AddrPort{}},
		"broker-pathless":  {"GET /v1/models" + rest, "GET /b/omb_t0_ours/anthropic/v1/models" + rest, netip.AddrPort{}},
		"broker-host":      {strings.Replace(plain, "Host: here", "Host: 127.0.0.1:9", 1), strings.Replace(plain, "Host: here", "Host: 127.0.0.1:9", 1), at(9)},
		"broker-follow":    {"GET /b/omb_t0_ours/anthropic/v1/models?check=B13&redirect=1" + rest, "GET /b/omb_t0_ours/anthropic/v1/models?check=B13&redirect=1" + rest, at(3)},
		"broker-passthrough": {"GET /b/omb_t0_ours/anthropic/v1/models?check=B4&key=own" + rest,
			"GET /v1/models?check=B4&key=own HTTP/1.1\r\nX-Api-Key: sk-key\r\nHost: here\r\n\r\n", at(1)},
	} {
		if to, changed := flaws[name].turn(o, c.head); to != c.to || changed != c.changed {
			t.Errorf("%s: to %v: %q", name, to, changed)
		}
	}
	for name, f := range flaws {
		if f.turn == nil || f.port(box.Ports{Broker: 2}) != 2 {
			continue
		}
		if to, changed := f.turn(o, plain); to.IsValid() || changed != plain {
			t.Errorf("%s turns a plain call: to %v: %q", name, to, changed)
		}
	}
}

// The stand-in provider sends the key back, or elsewhere, only when it is asked
// to by whoever has the key.
func TestProviderReflects(t *testing.T) {
	p := provider{key: "sk-good-key", ok: "yes", path: "/v1/models", away: "http://127.0.0.1:1/"}
	var err error
	if p.address, err = serve(&p.Server, &p); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for query, want := range map[string]int{"": 200, "?reflect=1": 200, "?redirect=1": 302} {
		for _, key := range []string{"sk-good-key", "sk-other-key"} {
			req, _ := http.NewRequest("GET", "http://"+p.address.String()+"/v1/models"+query, nil)
			req.Header.Set(keyHeader, key)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			wanted := want
			if key != p.key {
				wanted = 401
			}
			if resp.StatusCode != wanted || strings.Contains(string(text), p.key) != (query == "?reflect=1" && wanted == 200) {
				t.Errorf("%s with %s: %d %q", query, key, resp.StatusCode, text)
			}
		}
	}
}
