package cli

import (
	"strings"
	"testing"
)

// A name that is refused to drivers and given by us says both.
func TestWhyEnvTellsWhatABoxGets(t *testing.T) {
	for name, want := range map[string]string{
		"GIT_SSH_COMMAND": "refused: a command that git runs\ngiven to every engine's box with gates: GIT_SSH_COMMAND=ssh -o ProxyCommand='/run/botbox/boxentry connect %h %p' (",
		"OMB_HARNESS_URL": "pass: where the helpers find the harness gate\ngiven to every engine's box with gates: OMB_HARNESS_URL=http://127.0.0.1:8123 (",
		"TMPDIR":          "refused: the box has a /tmp of its own\ngiven to every box: TMPDIR=/tmp (",
		"LANGUAGE":        "pass: language and encoding\n",
	} {
		var out strings.Builder
		c := &call{stdout: &out, settings: Settings{Port: 8123}}
		if err := c.whyEnv(name, ""); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
	}
}
