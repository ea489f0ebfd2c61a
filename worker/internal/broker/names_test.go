package broker

import (
	"testing"

	"github.com/openmausbot/botbox/shared/boxenv"
)

// What the broker knows as a credential, the environment's table does: else a
// profile without keys, or a browser, would be given it once it is declared.
func TestTheTableOfTheEnvironmentKnowsTheBrokersNames(t *testing.T) {
	var names []string
	for _, p := range providers {
		names = append(names, p.baseEnv)
		for _, k := range p.keys {
			names = append(names, k.env)
		}
	}
	for _, row := range unbrokerable {
		names = append(names, row.env)
	}
	for _, name := range names {
		if verdict, _ := boxenv.Decide(name, "none", []string{name}); verdict != boxenv.Credential && verdict != boxenv.Refused {
			t.Errorf("%s, declared: %s", name, verdict)
		}
	}
}
