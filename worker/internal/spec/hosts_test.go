package spec

import (
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
)

func hosts(more, text string) (Spec, error) {
	return Decode([]byte(`{"argv":["x"],"cwd":"/w","env":{"XAI_API_KEY":"k","B_TOKEN":{"secret":"ref:b"},"TERM":"dumb"}` + more + `,"broker":{"hosts":` + text + `}}`))
}

func TestHosts(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`"a.example",`, MaxHosts+1), ",")
	for _, c := range []struct {
		more, hosts string
		good        bool
	}{
		{``, `[]`, true},
		{``, `null`, true},
		{``, `[{"env":"XAI_API_KEY","hosts":["api.x.ai"]}]`, true},
		{``, `[{"env":"XAI_API_KEY","hosts":["api.x.ai","eu-1.api.x.ai"],"paths":["/v1/chat/**","/v1/models/*","/","/a/v1*/b"]},{"env":"B_TOKEN","hosts":["b.example"]}]`, true},
		{`,"engine":"grok"`, `[{"env":"XAI_API_KEY","hosts":["api.x.ai"]}]`, true},

		{``, `[{"env":"XAI_API_KEY"}]`, false},
		{``, `[{"hosts":["api.x.ai"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["api.x.ai"],"port":443}]`, false},
		{``, `{"XAI_API_KEY":"api.x.ai"}`, false},
		{``, `[{"env":"ABSENT_KEY","hosts":["api.x.ai"]}]`, false},
		{``, `[{"env":"TERM","hosts":["api.x.ai"]}]`, false},
		{``, `[{"env":"LD_PRELOAD","hosts":["api.x.ai"]}]`, false},
		{``, `[{"env":"OMB_CLOUD_KEY","hosts":["api.x.ai"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["*.x.ai"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["*"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["api.x.ai:443"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["api.x.ai."]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["API.x.ai"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["https://api.x.ai"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["8.8.8.8"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["[2600::1]"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["0x7f.1"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["ai"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":[""]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["a@b.example"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["api.x.ai","api.x.ai"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["api.x.ai"]},{"env":"B_TOKEN","hosts":["api.x.ai"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["api.x.ai"]},{"env":"XAI_API_KEY","hosts":["b.example"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":[` + many + `]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["api.x.ai"],"paths":["v1"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["api.x.ai"],"paths":["/**/x"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["api.x.ai"],"paths":["/a*b"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["api.x.ai"],"paths":["/../x"]}]`, false},
		{``, `[{"env":"XAI_API_KEY","hosts":["api.x.ai"],"paths":["/a?b"]}]`, false},
		{`,"net":{"mode":"none"}`, `[{"env":"XAI_API_KEY","hosts":["api.x.ai"]}]`, false},
		{`,"profile":{"keys":"none"}`, `[{"env":"XAI_API_KEY","hosts":["api.x.ai"]}]`, false},
	} {
		_, err := hosts(c.more, c.hosts)
		if c.good && err != nil {
			t.Errorf("%s %.90s: %v", c.more, c.hosts, err)
		}
		if !c.good && (err == nil || reason.Of(err).Code != reason.BadSpec || !strings.Contains(err.Error(), "broker.hosts") && !strings.Contains(err.Error(), "unknown field")) {
			t.Errorf("%s %.90s: %v, want bad_spec and the field", c.more, c.hosts, err)
		}
	}
}

func TestLogins(t *testing.T) {
	for spec, good := range map[string]bool{
		`"engine":"claude","broker":{"logins":["claude"]}`:                                      true,
		`"engine":"codex","broker":{"logins":["codex"]}`:                                        true,
		`"engine":"claude","broker":{"logins":[]}`:                                              true,
		`"engine":"claude","broker":{"logins":["codex"]}`:                                       false,
		`"engine":"claude","broker":{"logins":["claude","claude"]}`:                             false,
		`"engine":"claude","broker":{"logins":"claude"}`:                                        false,
		`"engine":"claude","home":{"mode":"server"},"broker":{"logins":["claude"]}`:             false,
		`"engine":"claude","home":{"mode":"engine","path":"/h"},"broker":{"logins":["claude"]}`: false,
		`"engine":"claude","net":{"mode":"none"},"broker":{"logins":["claude"]}`:                false,
		`"engine":"claude","profile":{"keys":"none"},"broker":{"logins":["claude"]}`:            false,
	} {
		_, err := Decode([]byte(`{"argv":["x"],"cwd":"/w",` + spec + `}`))
		if (err == nil) != good || err != nil && (reason.Of(err).Code != reason.BadSpec || !strings.Contains(err.Error(), "broker.logins")) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}
