package turn

import (
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/boxenv"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/secret"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// credentials are all names that some engine's row calls one, each pattern
// with an example.
func credentials() []string {
	var all []string
	for _, row := range boxenv.All() {
		if row.Verdict == boxenv.Credential {
			all = append(all, strings.Replace(row.Name, "*", "EXAMPLE", 1))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Whatever the engine and whoever declares it: a credential is out of the box,
// or replaced, or named in the answer and in the report.
func TestNoCredentialIsRawAndUnnamed(t *testing.T) {
	raw := 0
	for _, engine := range append(spec.Engines, "acp:other") {
		for _, declared := range []bool{false, true} {
			for _, name := range credentials() {
				r, _ := newRunner(t)
				s := plain(t)
				s.Engine = engine
				value := "https://canary.example.com/v1" // fit for keys and for addresses
				s.Env = map[string]spec.Value{name: {Text: secret.New(value)}}
				if declared {
					s.EnvExtraNames = []string{name}
				}
				turn, answer, err := r.Prepare(s, Way{First: box.LeaseFD})
				if err != nil {
					t.Fatalf("%s in a box of %s: %v", name, engine, err)
				}
				inside := turn.Plan.Env[name] == value
				turn.Abandon()
				if named := slices.Contains(answer.Unbrokered, name); named != inside || slices.Contains(r.Unbrokered(), name) != inside {
					t.Errorf("%s in a box of %s, declared: %v: raw in it: %v, in the answer: %v, in the report: %v",
						name, engine, declared, inside, answer.Unbrokered, r.Unbrokered())
				}
				if inside {
					raw++
				}
			}
		}
	}
	if raw == 0 {
		t.Error("control: no credential is raw in any box")
	}
}

// What the broker writes in a credential's place is not the credential. A
// document of the driver's stays below what the broker writes, and is named if
// a key may be left in it.
func TestWhatTheBrokerReplacesIsNotRaw(t *testing.T) {
	for document, left := range map[string]bool{
		`{"provider":{"anthropic":{"options":{"apiKey":"canary","baseURL":"https://canary.example"}}}}`: false,
		`{"provider":{"other":{"options":{"apiKey":"canary"}}}}`:                                        true,
	} {
		r, _ := newRunner(t)
		s := plain(t)
		s.Engine = "opencode"
		s.Env = map[string]spec.Value{"ANTHROPIC_API_KEY": {Ref: "anthropic"}, "OPENCODE_CONFIG_CONTENT": {Text: secret.New(document)}}
		turn, answer, err := r.Prepare(s, Way{First: box.LeaseFD})
		if err != nil {
			t.Fatal(err)
		}
		text := turn.Plan.Env["OPENCODE_CONFIG_CONTENT"]
		turn.Abandon()
		if strings.Contains(text, "canary") != left || slices.Contains(answer.Unbrokered, "OPENCODE_CONFIG_CONTENT") != left || len(r.Unbrokered()) != len(answer.Unbrokered) {
			t.Errorf("%s: %q, %v, %v", document, text, answer.Unbrokered, r.Unbrokered())
		}
	}
}

// Without keys means without those of other engines, too.
func TestABoxWithoutKeysHasNoneOfAnotherEngine(t *testing.T) {
	for _, name := range credentials() {
		r, _ := newRunner(t)
		s := plain(t)
		s.Engine, s.Profile.Keys = "none", "none"
		s.Env = map[string]spec.Value{name: {Text: secret.New("canary")}, "NOTES": {Text: secret.New("canary")}}
		s.EnvExtraNames = []string{name, "NOTES"}
		turn, answer, err := r.Prepare(s, Way{First: box.LeaseFD})
		if err != nil {
			t.Fatal(err)
		}
		if value, ok := turn.Plan.Env[name]; ok || !slices.Contains(answer.DroppedEnv, name) {
			t.Errorf("%s is in the box: %q, dropped: %v", name, value, answer.DroppedEnv)
		}
		if turn.Plan.Env["NOTES"] != "canary" {
			t.Error("control: what was declared and is no key is not in the box")
		}
		turn.Abandon()
	}
}
