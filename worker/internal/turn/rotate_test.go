package turn

import (
	"testing"

	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/secret"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// A key that is exchanged between the moment in which a turn reads it and the
// one in which it has a token for it is not the one that is used.
func TestARotationWhileATurnIsPrepared(t *testing.T) {
	r, _ := newRunner(t)
	s := plain(t)
	s.Env = map[string]spec.Value{"ANTHROPIC_API_KEY": {Ref: "anthropic"}, "LANG": {Ref: "lang"}}
	rotate := false
	reads := 0
	r.Secrets = func(name string) (secret.Text, error) {
		if name == "lang" {
			return secret.New("no key at all"), nil
		}
		reads++
		if rotate {
			rotate = false
			r.Broker.Rotate(r.Secrets, "") // nobody has it yet
			return secret.New("sk-former"), nil
		}
		return secret.New("sk-present"), nil
	}
	for _, during := range []bool{false, true} {
		reads, rotate = 0, during
		turn, _, err := r.Prepare(s, Way{First: box.ChildFD})
		if err != nil {
			t.Fatal(err)
		}
		want := 1
		if during {
			want = 2
		}
		if reads != want {
			t.Errorf("rotated meanwhile %v: the secret was read %d times, want %d", during, reads, want)
		}
		if done, err := r.Broker.Rotate(r.Secrets, "anthropic"); err != nil || done.Grants != 0 {
			t.Errorf("rotated meanwhile %v: the turn had a former key (%+v, %v)", during, done, err)
		}
		turn.Abandon()
	}
}
