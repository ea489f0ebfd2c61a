package turn

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/secret"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// seedList are the keys that the earlier system left raw in every box.
var seedList = []string{
	"XAI_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY", "GREENFERENCE_API_KEY", "MODELGO_API_KEY", "CEREBRAS_API_KEY", "MINIMAX_API_KEY",
	"KIMI_API_KEY", "CURSOR_API_KEY", "FACTORY_API_KEY", "CLINE_API_KEY", "OPENCODE_API_KEY", "OPENROUTER_API_KEY",
}

// Each of them is raw, and named, only where neither the engine's own setting
// nor a declared host brings it to the broker; those that another engine is
// billed by do not enter at all.
func TestTheSeedsListOfRawKeys(t *testing.T) {
	for engine, raw := range map[string]string{
		"none":     "CLINE_API_KEY CURSOR_API_KEY FACTORY_API_KEY GREENFERENCE_API_KEY GROQ_API_KEY KIMI_API_KEY MINIMAX_API_KEY MODELGO_API_KEY OPENROUTER_API_KEY",
		"grok":     "CLINE_API_KEY CURSOR_API_KEY FACTORY_API_KEY GREENFERENCE_API_KEY GROQ_API_KEY KIMI_API_KEY MINIMAX_API_KEY MODELGO_API_KEY OPENROUTER_API_KEY XAI_API_KEY",
		"opencode": "CLINE_API_KEY CURSOR_API_KEY FACTORY_API_KEY GREENFERENCE_API_KEY MODELGO_API_KEY",
	} {
		for _, declare := range []bool{false, true} {
			r, _ := newRunner(t)
			s := plain(t)
			s.Engine, s.Env = engine, map[string]spec.Value{}
			for i, name := range seedList {
				s.Env[name] = spec.Value{Text: secret.New("canary-" + name)}
				if declare {
					s.Broker.Hosts = append(s.Broker.Hosts, spec.Hosts{Env: name, Hosts: []string{fmt.Sprintf("h%d.example.com", i)}})
				}
			}
			turn, answer, err := r.Prepare(s, Way{First: box.LeaseFD})
			if err != nil {
				t.Fatalf("%s: %v", engine, err)
			}
			defer turn.Abandon()
			if !declare {
				if got := strings.Join(answer.Unbrokered, " "); got != raw || len(answer.Intercepted) != 0 {
					t.Errorf("%s: %s, %v", engine, got, answer.Intercepted)
				}
				continue
			}
			if len(answer.Unbrokered) != 0 || len(answer.Intercepted) != len(seedList) || !slices.IsSorted(answer.Intercepted) || !slices.Equal(r.Intercepted(), answer.Intercepted) {
				t.Errorf("%s, declared: raw %v, %v, %v", engine, answer.Unbrokered, answer.Intercepted, r.Intercepted())
			}
			for _, name := range seedList {
				if !strings.HasPrefix(turn.Plan.Env[name], "omb_t0_") {
					t.Errorf("%s, declared: %s is %q", engine, name, turn.Plan.Env[name])
				}
			}
			for _, text := range []string{fmt.Sprint(turn.Plan.Env), fmt.Sprint(turn.Kit.Options), fmt.Sprint(turn.Kit.Argv), fmt.Sprint(answer)} {
				if strings.Contains(text, "canary-") {
					t.Errorf("%s, declared: a key is on its way into the box: %s", engine, text)
				}
			}
		}
	}
}
