package turn

import (
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// An engine's arguments go to the engine, or to what may be its wrapper when
// it would miss the broker without them; never to a command that is another.
func TestArgumentsGoToTheEngineOnly(t *testing.T) {
	for _, c := range []struct {
		command string
		key     bool
		added   int // words that stay before what was added; -1 = nothing was
		warned  bool
	}{
		{"codex exec", true, 1, false},
		{"codex exec", false, 1, false},
		{"node /usr/bin/codex exec", true, 2, false},
		{"/opt/my-codex exec", true, 1, false},
		{"/opt/my-codex exec", false, -1, false},
		{"cat file", false, -1, false},
		{"sh -c codex", false, -1, false},
		{"sh -c codex", true, -1, true},
	} {
		r, _ := newRunner(t)
		s := plain(t)
		s.Engine, s.Argv = "codex", strings.Fields(c.command)
		if c.key {
			s.Env = map[string]spec.Value{"OPENAI_API_KEY": {Ref: "anthropic"}}
		}
		turn, answer, err := r.Prepare(s, Way{First: box.LeaseFD})
		if err != nil {
			t.Fatal(err)
		}
		argv := turn.Plan.Argv
		turn.Abandon()
		if at := slices.Index(argv[1:], "-c") + 1; c.added >= 0 && (at != c.added || len(argv) <= len(s.Argv)) || c.added < 0 && !slices.Equal(argv, s.Argv) {
			t.Errorf("%s, key %v: %q", c.command, c.key, argv)
		}
		if warned := strings.Contains(strings.Join(answer.Warnings, " "), "takes no arguments of codex"); warned != c.warned {
			t.Errorf("%s, key %v: warnings %q", c.command, c.key, answer.Warnings)
		}
	}
}
