package spec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/shared/reason"
)

func egress(mode, text string) (Spec, error) {
	if mode == "shared" {
		return Decode([]byte(`{"kind":"browser","argv":["x"],"net":{"mode":"shared","egress":` + text + `}}`))
	}
	return Decode([]byte(`{"argv":["x"],"cwd":"/w","net":{"mode":"` + mode + `","egress":` + text + `}}`))
}

func TestEgress(t *testing.T) {
	long := strings.TrimSuffix(strings.Repeat(`"a.example",`, MaxPatterns+1), ",")
	ports := strings.TrimSuffix(strings.Repeat(`80,`, MaxPatterns+1), ",")
	for _, c := range []struct{ mode, egress, field string }{ // field "" = good
		{"gated", `{}`, ""},
		{"gated", `{"profile":"public","allow":[],"deny":["*.a.example:443","[2600::1]"],"ports":[80,443,65535],"max_bytes":1,"learn":true}`, ""},
		{"none", `{"allow":[],"deny":["a.example"],"ports":[],"max_bytes":1}`, ""},
		{"shared", `{"max_bytes":0,"deny":[],"learn":false}`, ""},
		{"gated", `{"profile":"private"}`, "net.egress.profile"},
		{"gated", `{"allow":["*"]}`, "net.egress.allow"},
		{"gated", `{"allow":["a.example",""]}`, "net.egress.allow"},
		{"gated", `{"allow":[` + long + `]}`, "net.egress.allow"},
		{"gated", `{"allow":"a.example"}`, "net.egress.allow"},
		{"gated", `{"deny":["http://a.example"]}`, "net.egress.deny"},
		{"gated", `{"deny":["a.example:0"]}`, "net.egress.deny"},
		{"gated", `{"deny":[` + long + `]}`, "net.egress.deny"},
		{"gated", `{"ports":[0]}`, "net.egress.ports"},
		{"gated", `{"ports":[-80]}`, "net.egress.ports"},
		{"gated", `{"ports":[65536]}`, "net.egress.ports"},
		{"gated", `{"ports":["80"]}`, "net.egress.ports"},
		{"gated", `{"ports":[` + ports + `]}`, "net.egress.ports"},
		{"gated", `{"max_bytes":-1}`, "net.egress.max_bytes"},
		{"gated", `{"max_bytes":1.5}`, "net.egress.max_bytes"},
		{"gated", `{"max_bytes":9223372036854775808}`, "net.egress.max_bytes"},
		{"none", `{"learn":true}`, "net.egress.learn"},
		{"shared", `{"learn":true}`, "net.egress.learn"},
		{"shared", `{"allow":[]}`, "net.egress"},
		{"shared", `{"deny":["a.example"]}`, "net.egress"},
		{"shared", `{"ports":[]}`, "net.egress"},
		{"shared", `{"max_bytes":1}`, "net.egress"},
	} {
		_, err := egress(c.mode, c.egress)
		if c.field == "" && err != nil {
			t.Errorf("%s %.80s: %v", c.mode, c.egress, err)
		}
		if c.field != "" && (err == nil || reason.Of(err).Code != reason.BadSpec || !strings.Contains(err.Error(), c.field)) {
			t.Errorf("%s %.80s: %v, want bad_spec and %s", c.mode, c.egress, err, c.field)
		}
	}
}

// Absent lets anything through, given and empty lets nothing through.
func TestEgressLists(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "any any any",
		`{"allow":null,"ports":null,"deny":null}`:        "any any any",
		`{"allow":[],"ports":[],"deny":[]}`:              "none none any",
		`{"allow":["B.example","*.a.example:443"]}`:      "b.example,*.a.example:443 any any",
		`{"ports":[443,80],"deny":["[2600::1]"]}`:        "any 443,80 [2600::1]",
		`{"allow":["8.8.8.8"],"ports":[],"deny":["x."]}`: "8.8.8.8 none x",
	} {
		s, err := egress("gated", text)
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Net.Egress.Lists()
		if err != nil {
			t.Fatal(err)
		}
		deny := l.Deny
		if len(deny) == 0 {
			deny = nil
		}
		if got := show(l.Allow) + " " + show(l.Ports) + " " + show(deny); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func show[T hostport.Pattern | uint16](list []T) string {
	switch {
	case list == nil:
		return "any"
	case len(list) == 0:
		return "none"
	}
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = fmt.Sprint(v)
	}
	return strings.Join(words, ",")
}

// What Decode let through, the gates can read; and it is the same after it was
// sent on.
func FuzzEgress(f *testing.F) {
	f.Add(`{"allow":["*.a.example:443"],"deny":["[2600::1]:80"],"ports":[80],"max_bytes":1,"learn":true}`)
	f.Add(`{"allow":[],"ports":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := egress("gated", text)
		if err != nil {
			return
		}
		l, err := s.Net.Egress.Lists()
		if err != nil {
			t.Fatalf("%s was decoded: %v", text, err)
		}
		if (s.Net.Egress.Allow == nil) != (l.Allow == nil) || (s.Net.Egress.Ports == nil) != (l.Ports == nil) {
			t.Errorf("%s: empty and absent are confused: %+v", text, l)
		}
		for _, p := range append(l.Allow, l.Deny...) {
			if again, err := hostport.ParsePattern(p.String()); err != nil || again != p {
				t.Errorf("%s is read back as %v, %v", p, again, err)
			}
		}
	})
}
