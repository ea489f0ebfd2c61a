package spec

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
)

// whole is a spec with every field that this build has.
const whole = `{"v":1,"id":"box_1","kind":"turn","bot":"b-12","conversation":"t-99","turn":"u-1",
 "audience":{"kind":"team","id":"x"},"engine":"claude","argv":["/usr/local/bin/claude","-p","…"],"cwd":"/data/project",
 "home":{"mode":"engine","path":"/data/homes/team","signin":[]},"data_dir":"/data/.openmausbot",
 "paths":{"rw":["/data/.openmausbot/workspaces/b-12"],"ro":["/data/.openmausbot/hook-tokens/t-99"],
  "argv_files":["/tmp/omb-mcp-x/mcp.json"],"perm_socket_dir":"/data/.openmausbot/perm/t-99"},
 "env":{"ANTHROPIC_API_KEY":{"secret":"ref:anthropic"},"LANG":"C.UTF-8","http_proxy":"a","HTTP_PROXY":"b"},
 "env_extra_names":["NOTES_TOKEN"],
 "net":{"mode":"gated","egress":{"profile":"public","allow":["example.com"],"deny":[],"ports":[],"max_bytes":0},
  "harness":{"upstream":"tcp:127.0.0.1:8799","prefix":"/api/internal/"},"relay":false,"loopback_upstreams":[]},
 "broker":{"keys":[{"env":"ANTHROPIC_API_KEY","provider":"anthropic","secret":"ref:anthropic","base_url":null}],"mcp":[],"ttl_s":86400,
  "limits":{"concurrent":8,"requests_per_min":60,"bytes":1000000,"tokens":500000}},
 "local_vm":false,"browser":{"launcher":false,"profile":null},
 "limits":{"pids":512,"memory_mb":2048,"cpu":1.5,"tmp_mb":512,"nofile":4096,"wall_s":3600,"idle_s":600,"file_mb":100,"disk_free_mb":50},
 "user":{"mode":"maus"},"tty":false,"on_unavailable":"refuse"}`

func TestAWholeSpec(t *testing.T) {
	s, err := Decode([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if s.Env["ANTHROPIC_API_KEY"].Ref != "anthropic" || s.Env["LANG"].Text.Reveal() != "C.UTF-8" || len(*s.Net.Egress.Allow) != 1 {
		t.Errorf("%+v", s)
	}
}

// Absent means any host, given and empty means none.
func TestAnEmptyAllowListIsNotAnAbsentOne(t *testing.T) {
	for text, want := range map[string]bool{`{}`: false, `{"allow":[]}`: true, `{"allow":null}`: false} {
		s, err := Decode([]byte(`{"argv":["x"],"cwd":"/tmp/w","net":{"egress":` + text + `}}`))
		if err != nil || (s.Net.Egress.Allow != nil) != want {
			t.Errorf("%s: %v, %v", text, s.Net.Egress.Allow, err)
		}
	}
}

// No error text shows what a field holds: it may be a key.
func TestErrorsNameFieldsNotValues(t *testing.T) {
	for _, text := range []string{
		`{"argv":["x"],"cwd":"/w","env":{"K":["canary"]}}`,
		`{"argv":["x"],"cwd":"/w","env":{"K":{"secret":"canary"}}}`,
		`{"argv":["x"],"cwd":"/w","env":{"K":"canary\u0000"}}`,
		`{"argv":["x"],"cwd":"/w","env":{"K":"canary"`,
		`{"argv":["x"],"cwd":"/w","limits":{"pids":"canary"}}`,
		`{"argv":["x"],"cwd":"/w","broker":{"mcp":[{"name":"n","url":"u","headers":{"A":1,"B":"canary"}}]}}`,
	} {
		_, err := Decode([]byte(text))
		if err == nil || reason.Of(err).Code != reason.BadSpec || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What is read is what was written: `botbox run` sends what it decoded itself.
func FuzzDecode(f *testing.F) {
	f.Add(whole)
	f.Add(`{"argv":["true"],"cwd":"/tmp/w"}`)
	f.Add(`{"argv":["true"],"cwd":"/tmp/w","env":{"A":{"secret":"ref:x"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Decode([]byte(text))
		if err != nil {
			if code := reason.Of(err).Code; code != reason.BadSpec && code != reason.LocalVM {
				t.Errorf("code %s", code)
			}
			return
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(b)
		if err != nil {
			t.Fatalf("what was read is refused when it is sent on: %v\n%s", err, b)
		}
		c, _ := json.Marshal(again)
		if string(b) != string(c) {
			t.Errorf("%s\nbecame %s", b, c)
		}
	})
}

func TestLimitsOfTheBroker(t *testing.T) {
	for limits, good := range map[string]bool{
		`{}`: true, `{"concurrent":256,"requests_per_min":1,"bytes":1,"tokens":1}`: true,
		`{"concurrent":257}`: false, `{"concurrent":-1}`: false, `{"requests_per_min":-1}`: false, `{"bytes":-1}`: false, `{"tokens":-1}`: false,
		`{"tokens":1.5}`: false, `{"spend":1}`: false, `{"tokens":99999999999999999999}`: false,
	} {
		_, err := Decode([]byte(`{"argv":["x"],"cwd":"/w","broker":{"limits":` + limits + `}}`))
		if (err == nil) != good || (err != nil && reason.Of(err).Code != reason.BadSpec) {
			t.Errorf("%s: %v", limits, err)
		}
	}
}

func TestRefsAreNamedByTheirVariable(t *testing.T) {
	s, err := Decode([]byte(`{"argv":["x"],"cwd":"/w","env":{"A":{"secret":"ref:a"},"B":"b","C":{"secret":"ref:c"}},` +
		`"broker":{"keys":[{"env":"C","provider":"p","secret":"ref:other"}]}}`))
	if refs := s.Refs(); err != nil || len(refs) != 2 || refs["A"] != "a" || refs["C"] != "other" {
		t.Errorf("%v, %v", refs, err)
	}
}

func TestLimitsThatAreASlipOfThePen(t *testing.T) {
	for limits, good := range map[string]bool{
		`{}`: true, `{"cpu":0.01}`: true, `{"cpu":0.5,"memory_mb":64,"wall_s":1,"pids":1}`: true,
		`{"cpu":0.001}`: false, `{"cpu":1e9}`: false, `{"cpu":-1}`: false, `{"memory_mb":-1}`: false, `{"memory_mb":99999999}`: false,
		`{"wall_s":-1}`: false, `{"wall_s":99999999}`: false, `{"idle_s":1,"file_mb":1,"disk_free_mb":1}`: true, `{"idle_s":-1}`: false, `{"idle_s":99999999}`: false,
		`{"file_mb":-1}`: false, `{"file_mb":99999999}`: false, `{"disk_free_mb":-1}`: false, `{"disk_free_mb":99999999}`: false, `{"pids":-1}`: false,
	} {
		_, err := Decode([]byte(`{"argv":["x"],"cwd":"/w","limits":` + limits + `}`))
		if (err == nil) != good || (err != nil && reason.Of(err).Code != reason.BadSpec) {
			t.Errorf("%s: %v", limits, err)
		}
	}
}
